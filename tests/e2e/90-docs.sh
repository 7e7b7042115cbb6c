# Options in the rows (--help) and in the manual are the same set; manuals are clean mdoc.
. "$(dirname "$0")/lib.sh"
# names - the lines of stdin, sorted; none at all is a failure, since two empty lists would agree.
names() { sort -u | grep .; }
help_names() { $1 --help | grep -oE '^ +(-., )?--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+' | names; }
man_names() { grep -E '^\.It Fl' "man/$1.1" | grep -oE 'Fl Fl [a-z0-9-]+' | sed 's/Fl Fl /--/' | names; }
help_shorts() { $1 --help | grep -oE '^ +-., --[a-z0-9-]+' | sed -E 's/^ +-(.), --/\1 /' | names; }
man_shorts() { sed -nE 's/^\.It Fl ([a-zA-Z0-9]) , Fl Fl ([a-z0-9-]+).*/\1 \2/p' "man/$1.1" | names; }
same() {
    "$1_names" "$3" > "$T/a" && "$2_names" "$3" > "$T/b" && diff "$T/a" "$T/b"
}
same_shorts() {
    help_shorts "$1" > "$T/a" && man_shorts "$1" > "$T/b" && diff "$T/a" "$T/b"
}
# Every --option a manual's text or examples mention is one that its tool has.
mentions() {
    help_names "$1" > "$T/a"
    sed -nE 's/^\.D[l1] (ckpt-[a-z]+ .*)/\1/p' "man/$1.1" | sed -E 's/\\-/-/g' | grep -E "^$1 " |
        grep -oE -- '--[a-z][a-z0-9-]+' | sort -u | while read -r o; do
        grep -qxF -e "$o" "$T/a" || grep -qxF -e "--${o#--no-}" "$T/a" || echo "$o: no such option"
    done | tee "$T/bad"
    [ ! -s "$T/bad" ]
}
for tool in ckpt-train ckpt-merge ckpt-push ckpt-inspect ckpt-eval; do
    t "$tool: help and manual have the same options" same help man $tool
    t "$tool: with the same short names" same_shorts $tool
    t "$tool: the examples use options it has" mentions $tool
    for section in NAME SYNOPSIS DESCRIPTION OPTIONS OUTPUT 'EXIT STATUS' EXAMPLES 'SEE ALSO'; do
        t "$tool(1) has $section" grep -qx ".Sh $section" "man/$tool.1"
    done
done
# Cross references lead somewhere.
refs() {
    grep -hoE '^\.Xr ckpt-[a-z]+ [0-9]' man/*.[0-9] | sort -u | while read -r _ name part; do
        [ -e "man/$name.$part" ] || echo "$name($part): no such page"
    done | tee "$T/bad"
    [ ! -s "$T/bad" ]
}
t "pages that are referred to are there" refs
clean() { local out; out=$(mandoc -Tlint -Wwarning "$1" 2>&1) && [ -z "$out" ] || { echo "$out"; return 1; }; }
for page in man/*.[0-9]; do t "$page is clean" clean "$page"; done
