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
# Every option has its default in help and manual, the same one; but those that are an action.
help_rows() { $1 --help | awk '/^  (    |-., )--/ { if (row) print row; row = "" } /^$/ { if (row) print row; row = "" } { sub(/^ +/, ""); row = row (row ? " " : "") $0 } END { print row }' | grep '^-'; }
man_row() { awk -v want="Fl Fl $2" 'function has(l) { return index(l " ", want " ") } /^\.It / { on = /^\.It Fl/ ? has($0) : on } /^\.S[hs]/ { on = 0 } on' "man/$1.1" | tr '\n' ' '; }
defaults() {
    help_rows "$1" > "$T/rows"; grep -q . "$T/rows" || return 1
    while IFS= read -r row; do
        name=$(sed -E 's/^(-., )?--([a-z0-9-]+).*/\2/' <<< "$row")
        [[ $name =~ ^(completion|help|version|config|print-config|print-fields)$ ]] && continue
        said=$(sed -nE 's/.*\(default: (.*)\)( one of: .*)?$/\1/p' <<< "$row")
        [ "$said" ] || echo "$name: no default in --help"
        page=$(man_row "$1" "$name"); page=${page//\\-/-}
        case $page in *"Default: $said. "*|*"Default: all; none. "*) ;; *) echo "$name: $said by --help, another by the manual" ;; esac
    done < "$T/rows" | tee "$T/bad"
    [ ! -s "$T/bad" ]
}
for tool in ckpt-train ckpt-merge ckpt-push ckpt-inspect ckpt-eval; do
    t "$tool: defaults are told" defaults $tool
    t "$tool: errors as JSON are told" bash -c "sed -n '/^.Sh OUTPUT/,/^.Sh EXIT/p' man/$tool.1 | grep -q 'the error is one JSON object on standard error instead'"
    $tool --nosuch --json 2>"$T/e"; t "$tool: they are such" grep -qE '^\{"tool":"'$tool'","status":64,"reason":"[a-z-]+","error":"[^"]+"(,"hint":"[^"]+")?\}$' "$T/e"
done
