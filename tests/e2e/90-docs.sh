# Options in the rows (--help) and in the manual are the same set; manuals are clean mdoc.
. "$(dirname "$0")/lib.sh"
for tool in ckpt-train ckpt-merge ckpt-push ckpt-inspect ckpt-eval; do
    help_names() { $tool --help | grep -oE '^ +(-., )?--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+' | sort -u; }
    man_names() { grep -E '^\.It Fl' "man/$tool.1" | grep -oE 'Fl Fl [a-z0-9-]+' | sed 's/Fl Fl /--/' | sort -u; }
    same() { diff <(help_names) <(man_names); }
    t "$tool: help and manual agree" same
done
for page in man/*.[0-9]; do
    clean() { [ -z "$(mandoc -Tlint -Wwarning "$page")" ]; }
    t "$page is clean" clean
done
