#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: man_page.py STINT PAGE [PROSE...]

Prints the source of a man page, for scdoc: its name, synopsis and options are those of the
program's own tables (`stint help --json`). Sections of the first PROSE file are added, and replace
those of the tables. Under OPTIONS a PROSE file has what is longer than the help: its text before
the first entry stays, and an entry replaces the help of its options.
"""
import json
import re
import subprocess
import sys
from pathlib import Path

FIRST = ["NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "OPTIONS"]


def described(stint, *words):
    done = subprocess.run([stint, "help", "--json", *words], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def commands(stint):
    """Page -> words of its command, for all commands and groups."""
    return {"-".join(["stint", *words]): words
            for row in described(stint)["commands"]
            for words in [[row["name"]]] + [[row["name"], each["name"]]
                                            for each in row.get("commands", [])]}


def escaped(text):
    return re.sub(r"([\\*_`<>]|^[-#.|\[\];])", r"\\\1", text)


def paragraphs(text):
    return "\n\n".join("++\n".join(map(escaped, part.split("\n")))
                       for part in text.strip().split("\n\n"))


def sections(path):
    """Title -> text."""
    parts = re.split(r"(?m)^# (.*)\n", Path(path).read_text(encoding="utf-8"))
    return dict(zip(parts[1::2], (part.strip("\n") for part in parts[2::2])))


def entries(text):
    """The text before the first entry, and (names of options, text) of each entry."""
    parts = re.split(r"(?m)^(\*--.*)\n", re.sub(r"(?m)^## .*\n+", "", text))
    return parts[0].strip(), [(re.findall(r"\*--([\w-]+)\*", head), body.strip("\n"))
                              for head, body in zip(parts[1::2], parts[2::2])]


def headline(option):
    argument = option["argument"]
    if argument is None:
        return f"*--{option['name']}*"
    return f"*--{option['name']}*" + (f"[=_{argument}_]" if option["is_optional"]
                                      else f" _{argument}_")


def options_of(command, before, longer):
    """`longer`: (names, text) of entries. Each entry is printed once, for all of its options."""
    known = {option["name"]: option for option in command["options"]}
    text, done = [before] if before else [], set()
    for name, option in known.items():
        if name in done:
            continue
        names, body = next(((names, body) for names, body in longer if name in names),
                           ([name], "\t" + escaped(option["help"])))
        names = [each for each in names if each in known]
        done.update(names)
        text.append(", ".join(headline(known[each]) for each in names) + "\n" + body)
    return "\n\n".join(text)


def list_of(name, rows):
    return "\n\n".join(f"*{row['name']}*\n\t{escaped(row['summary'])}; see "
                       f"*{name}-{row['name']}*(1)" for row in rows)


def page_of(stint, page, paths):
    """Title -> text."""
    proses = [sections(path) for path in paths]
    own = proses[0] if proses and Path(paths[0]).name == f"{page}.1.scd" else {}
    words = commands(stint).get(page, [])
    command = described(stint, *words)
    if page == "stint":
        own["COMMANDS"] = "\n\n".join(
            list_of("stint", [row]) + "".join(
                f"\n\n*{row['name']} {each['name']}*\n\t{escaped(each['summary'])}; see "
                f"*stint-{row['name']}-{each['name']}*(1)" for each in row.get("commands", []))
            for row in command["commands"])
        return own
    name = " ".join(["stint", *words])
    made = {"NAME": f"{page} - {escaped(command['summary'])}", "DESCRIPTION": "",
            "SEE ALSO": ", ".join(f"*{each}*(1)" for each in dict.fromkeys(
                ["stint", "-".join(["stint", *words[:-1]]), *(Path(path).name.split(".")[0]
                                                              for path in paths)])
                                  if each != page)}
    if "commands" in command:
        made["SYNOPSIS"] = f"*{name}* _SUBCOMMAND_ [_OPTION_...]"
        made["COMMANDS"] = list_of(page, command["commands"])
        own.pop("OPTIONS", None)
    else:
        made["SYNOPSIS"] = "++\n".join(
            f"*{name}* {'[_OPTION_...] ' if command['options'] else ''}{escaped(line)}".strip()
            for line in (command["arguments"] or "").split("\n"))
        made["DESCRIPTION"] = paragraphs(command["doc"])
        split = [entries(prose.get("OPTIONS", "")) for prose in proses]
        before = split[0][0] if own and split else ""
        made["OPTIONS"] = options_of(command, before, sum((longer for _, longer in split), []))
        if command["notes"]:
            made["NOTES"] = paragraphs(command["notes"])
        if own:
            made.pop("NOTES", None)
            own.pop("OPTIONS", None)
    return {**made, **own}


def main():
    stint, page, *paths = sys.argv[1:]
    made = page_of(stint, page, paths)
    order = [title for title in FIRST if made.get(title)]
    order += [title for title in made if title not in order and title != "SEE ALSO" and made[title]]
    print(f"{page}(1)")
    for title in [*order, "SEE ALSO"]:
        print(f"\n# {title}\n\n{made[title]}")


if __name__ == "__main__":
    main()
