/*
 * adopt - whether a file that exists may become a new one elsewhere, instead of being copied.
 */
#ifndef CKPT_LIBCKPT_IO_ADOPT_H
#define CKPT_LIBCKPT_IO_ADOPT_H

/*
 * Open the file at path, which must be the one open as fd, under one name, and open nowhere else;
 * give it mode, group and access list of the file `like`.  -1 where one of these fails.
 */
int adopt_open(const char *path, int fd, int like);

#endif
