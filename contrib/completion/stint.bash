# SPDX-License-Identifier: MIT
# Completes command lines of stint in bash, with the package bash-completion. The program itself
# knows the candidates: `stint help --complete`.
_stint() {
    local cur prev words cword line
    _init_completion -n =: || return
    local program=${words[0]/#\~/$HOME}
    while IFS= read -r line; do
        case $line in
            :file) cur=${cur#--*=} && _filedir ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <("$program" help --complete "${words[@]:1:cword}" 2>/dev/null)
    __ltrim_colon_completions "${cur#--*=}"
} && complete -F _stint stint
