/* term - see term.h. */
#include "tools/term.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LEAST 20                /* a terminal that says less says nothing */
#define USUAL 80

int term_width(int fd)
{
    const char *said = getenv("COLUMNS");
    struct winsize size;
    long n = said ? strtol(said, NULL, 10) : 0;

    if (n >= LEAST && n <= 10000)
        return (int)n;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= LEAST ? size.ws_col : USUAL;
}

int term_columns(int fd) { return isatty(fd) ? term_width(fd) : 0; }

bool term_draws(int fd)
{
    const char *kind = getenv("TERM");

    return isatty(fd) && kind && *kind && strcmp(kind, "dumb") != 0;
}

bool term_bold(int fd)
{
    const char *no = getenv("NO_COLOR");

    return term_draws(fd) && !(no && *no);
}
