/* CSV of any bytes: with types, as text, with another delimiter and given names. */
#include "tests/fuzz/lib/records_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct records_opts plain, other = {.delimiter = ';', .literal = true,
                                                     .columns = "a,b,a"};

    walk(&record_csv, data, size, &plain, NULL);
    walk(&record_csv, data, size, &other, NULL);
    return 0;
}
