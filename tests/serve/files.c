/* files.c - files and digests, and the escapes of addresses. */
#include "tests/serve/serve.h"

#include <ctype.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

char *map_file(const char *path, size_t *n)
{
    int fd = open(path, O_RDONLY);
    struct stat st;
    char *at;

    *n = 0;
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    *n = (size_t)st.st_size;
    at = *n ? mmap(NULL, *n, PROT_READ, MAP_PRIVATE, fd, 0) : "";
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

void unmap(char *at, size_t n)
{
    if (n)
        munmap(at, n);
}

void hex_digest(char *hex, const char *algorithm, const char *head, size_t n_head,
                const char *body, size_t n)
{
    unsigned char d[64];
    unsigned len = 0;
    EVP_MD_CTX *c = EVP_MD_CTX_new();

    EVP_DigestInit_ex(c, EVP_get_digestbyname(algorithm), NULL);
    EVP_DigestUpdate(c, head, n_head);
    EVP_DigestUpdate(c, body, n);
    EVP_DigestFinal_ex(c, d, &len);
    EVP_MD_CTX_free(c);
    for (unsigned i = 0; i < len; i++)
        sprintf(hex + 2 * i, "%02x", d[i]);
}

void git_sha(char hex[41], const char *body, size_t n)
{
    char head[40];
    int k = snprintf(head, sizeof head, "blob %zu", n) + 1;

    hex_digest(hex, "sha1", head, (size_t)k, body, n);
}

void make_folders(const char *path)
{
    char part[SERVE_PATH];

    for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(at - path), path);
        mkdir(part, 0777);
    }
}

/* Under another name first: who reads it sees all or nothing. */
bool write_file(const char *path, const char *bytes, size_t n)
{
    static long serial;
    char draft[SERVE_PATH + 40];
    FILE *f;
    bool ok;

    make_folders(path);
    snprintf(draft, sizeof draft, "%s.%ld.new", path, __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED));
    f = fopen(draft, "w");
    if (!f)
        return false;
    ok = fwrite(bytes, 1, n, f) == n;
    ok = fclose(f) == 0 && ok;
    return ok && rename(draft, path) == 0;
}

/* The last byte changed, as a disk may do it. */
void rot_file(const char *path)
{
    int fd = open(path, O_RDWR);
    off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    char c;

    if (end > 0 && pread(fd, &c, 1, end - 1) == 1) {
        c = (char)(c ^ 1);
        if (pwrite(fd, &c, 1, end - 1) != 1)
            perror(path);
    }
    if (fd >= 0)
        close(fd);
}

long long file_size(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (long long)st.st_size : -1;
}

void unescape(char *s)
{
    char *to = s;

    for (; *s; s++)
        if (*s == '%' && isxdigit((unsigned char)s[1]) && isxdigit((unsigned char)s[2])) {
            char hex[3] = {s[1], s[2], 0};

            *to++ = (char)strtol(hex, NULL, 16);
            s += 2;
        } else {
            *to++ = *s;
        }
    *to = '\0';
}

void query_value(char *dst, size_t size, const char *query, const char *name)
{
    const char *at = strstr(query, name);

    *dst = '\0';
    if (at)
        snprintf(dst, size, "%.*s", (int)strcspn(at + strlen(name), "&"), at + strlen(name));
    unescape(dst);
}

