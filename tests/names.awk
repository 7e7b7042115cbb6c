# names.awk HEADER... - functions that a header declares and whose name does not say where they live.
#
# A name begins with its room's (the file's), its folder's, or both, ckpt_ before it or not; or with
# an abbreviation of its folder, which a header there lists in its head comment (up to a full stop):
#
#  * Abbreviations: ds (deepspeed), ds3 (ZeRO stage 3).
#
# Functions of ckpt.h begin with ckpt_.
# Prints file:line:name for each other.  Headers are read twice: abbreviations first.
function words(line,    n, w, i) {
    sub(/^ \* (Abbreviations: )?/, "", line)
    gsub(/\([^)]*\)/, "", line)
    n = split(line, w, /[ ,.]+/)
    for (i = 1; i <= n; i++)
        if (w[i] != "") short[folder] = short[folder] " " w[i]
}

function begins(name, with) {
    return name == with || index(name, with "_") == 1
}

function lives_here(name,    p, n, w, i) {
    if (begins(name, stem)) return 1
    sub(/^ckpt_/, "", name)
    p = folder
    sub(/.*\//, "", p)
    if (begins(name, stem) || begins(name, p) || begins(name, first)) return 1
    n = split(short[folder], w, " ")
    for (i = 1; i <= n; i++)
        if (begins(name, w[i])) return 1
    return 0
}

# One declaration without comments, directives and bodies.
function judge(text, at,    name) {
    gsub(/__attribute__ *\(\(.*\)\)/, "", text)
    gsub(/template *<[^>]*>|__align__ *\([^)]*\)|__launch_bounds__ *\([^)]*\)/, "", text)
    gsub(/[ \t\n]+/, " ", text)
    sub(/^ /, "", text)
    if (text ~ /^(typedef|_Static_assert|struct [a-z0-9_]+ ?$)/ || !match(text, /^[A-Za-z_][A-Za-z0-9_ *]*\(/))
        return
    name = substr(text, 1, RLENGTH - 1)
    if (name !~ /[ *]/) return
    sub(/.*[ *]/, "", name)
    if (name == "" || name == "void" || name == "int") return
    if (!lives_here(name)) print FILENAME ":" at ":" name
}

FNR == 1 {
    again = seen[FILENAME]++
    folder = FILENAME; sub(/\/[^\/]*$/, "", folder)
    stem = FILENAME; sub(/.*\//, "", stem); sub(/\.[a-z]*$/, "", stem)
    first = stem; sub(/_.*/, "", first)
    listing = 0; text = ""; depth = 0; comment = 0; directive = 0; cplusplus = 0
}

!again {
    if ($0 ~ /^ \* Abbreviations: /) listing = 1
    if (listing) words($0)
    if ($0 ~ /\.$|\*\/$/) listing = 0
    next
}

{
    line = $0
    if (directive || (!comment && line ~ /^[ \t]*#/)) {
        if (line ~ /^#ifdef __cplusplus/) cplusplus = 1
        if (line ~ /^#endif/) cplusplus = 0
        directive = line ~ /\\$/
        next
    }
    if (cplusplus) next
    while (line != "") {
        if (comment) {
            i = index(line, "*/")
            if (!i) break
            line = substr(line, i + 2); comment = 0
            continue
        }
        c = substr(line, 1, 1); two = substr(line, 1, 2)
        if (two == "//") break
        if (two == "/*") { comment = 1; line = substr(line, 3); continue }
        line = substr(line, 2)
        if (c == "{") depth++
        if (c == "}" && --depth == 0) { if (text ~ /\)[ \n]*$/) { judge(text, start); text = "" } continue }
        if (depth) continue
        if (c == ";") { judge(text, start); text = ""; continue }
        if (text == "" && c ~ /[ \t]/) continue
        if (text == "") start = FNR
        text = text c
    }
    if (!depth && text != "") text = text "\n"
}
