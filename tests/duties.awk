# duties.awk - what tests say of the duties (tests/duties.tsv): a test whose name begins with ids stands for these.
#
#   awk -f tests/duties.awk tests/duties.tsv SCRIPT... LOG...
#
# Scripts are those named *.sh: an id that none of them has is missing.  Logs have "ok ID ... NAME" and "not ok ID ...".
# Prints a column for each system, a row for each number, and how many duties have passed; one that failed once has
# failed.  Prints nothing where no test with an id ran.
FNR == NR { split($0, row, "\t"); ids[++n] = row[1]; next }
FILENAME ~ /\.sh$/ {
    while (match($0, /["'](([ABCDE][0-9]+|X[0-9]) )+/)) {
        k = split(substr($0, RSTART + 1, RLENGTH - 1), word, " ")
        for (i = 1; i <= k; i++) said[word[i]] = 1
        $0 = substr($0, RSTART + RLENGTH)
    }
    next
}
/^(not )?ok [ABCDEX][0-9]/ {
    bad = /^not /
    sub(/^(not )?ok /, "")
    k = split($0, word, " ")
    for (i = 1; i <= k && word[i] ~ /^[ABCDEX][0-9]+$/; i++) {
        ran[word[i]] = some = 1
        if (bad) failed[word[i]] = 1
    }
}
END {
    if (!some) exit
    for (i = 1; i <= n; i++) {
        id = ids[i]; letter = substr(id, 1, 1); number = substr(id, 2) + 0
        is = failed[id] ? "failed" : ran[id] ? "passed" : said[id] ? "not run" : "missing"
        passed += is == "passed"
        cell[letter, number] = sprintf("%-4s%s", id, is)
        if (number > most) most = number
    }
    for (r = 1; r <= most; r++) {
        line = ""
        for (c = 1; c <= 6; c++) line = line sprintf("%-13s", cell[substr("ABCDEX", c, 1), r])
        sub(/ +$/, "", line); print line
    }
    print "duties: " passed + 0 " of " n
}
