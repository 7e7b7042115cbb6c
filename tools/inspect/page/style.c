/* page/style - see style.h. */
#include "tools/inspect/page/style.h"

const char page_style[] =
#include "tools/inspect/page/style.inc"
    ;
