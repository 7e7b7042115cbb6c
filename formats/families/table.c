/* table - the lists of families' rows; see family.h. */
#include "formats/families/keys.h"

const struct family *const family_table[] = {
    families_early, families_llama, families_encoders, families_others, NULL,
};
