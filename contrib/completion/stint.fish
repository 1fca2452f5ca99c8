# SPDX-License-Identifier: MIT
# Completes command lines of stint in fish. The program itself knows the candidates:
# `stint help --complete`.
function __stint_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l option (string match -r -- '^--[^=]+=' $current)
    for line in ($words[1] help --complete $words[2..-1] "$current" 2>/dev/null)
        if test $line = :file
            __fish_complete_path (string replace -r -- '^--[^=]+=' '' "$current")
        else
            echo $line
        end
    end | string replace -r -- '^' "$option"
end
complete -c stint -f -a '(__stint_complete)'
