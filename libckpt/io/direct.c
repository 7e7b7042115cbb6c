/* direct - see direct.h. */
#include "libckpt/io/direct.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define EXT4  0xef53
#define LEAST ((size_t)128 << 10)   /* smallest write, in bytes, for which this pays */

int direct_open(int dir_fd, const char *name, int fd)
{
    struct stat a, b;
    struct statfs fs;
    int direct;

    if (fstatfs(fd, &fs) || fs.f_type != EXT4)
        return -1;
    direct = openat(dir_fd, name, O_WRONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC);
    if (direct >= 0 && (fstat(fd, &a) || fstat(direct, &b) || a.st_dev != b.st_dev ||
                        a.st_ino != b.st_ino)) {
        close(direct);
        direct = -1;
    }
    return direct;
}

size_t direct_pages(size_t *head, const void *src, uint64_t at, size_t n)
{
    *head = (DIRECT_PAGE - at % DIRECT_PAGE) % DIRECT_PAGE;
    if ((uintptr_t)src % DIRECT_PAGE != at % DIRECT_PAGE || n < LEAST + *head)
        return 0;
    return (n - *head) / DIRECT_PAGE * DIRECT_PAGE;
}
