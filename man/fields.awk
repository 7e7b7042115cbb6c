# fields.awk - the lists of fields in ckpt-run(5), from the lines of ckpt-train --print-fields;
# make fields puts them there.
BEGIN { FS = "\t" }
function text(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); return s }
function end_list() { if (list) print ".El"; list = 0 }
function close_program(   i) {
    if (!program) return
    print ".Ss " text(program) ", what has an effect\n.Bl -tag -width 28n -compact"
    for (i = 1; i <= n["does"]; i++) print row["does", i]
    print ".El"
    if (n["not done"]) {
        print ".Ss " text(program) ", what is not done\n.Bl -tag -width 28n -compact"
        for (i = 1; i <= n["not done"]; i++) print row["not done", i]
        print ".El"
    }
    if (n["harmless"]) {
        print ".Ss " text(program) ", what has no effect here"
        for (i = 1; i <= n["harmless"]; i++) print row["harmless", i] (i < n["harmless"] ? " ," : " .")
    }
    delete n; delete row
}
$1 != program { close_program(); program = $1 }
$3 == "harmless" { row[$3, ++n[$3]] = ".Li " text($2); next }
{ row[$3, ++n[$3]] = ".It Li " text($2) "\n" text($4) "." }
END { close_program() }
