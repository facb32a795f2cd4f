/* System calls that fail on demand: LD_PRELOAD this, and write "<call> <errno> <part of a path>" into the file $FAIL_CALLS.
 *
 * A call on a descriptor whose path has that part then fails with that errno, and is not made. An empty file: none fails.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(const char *call, int fd)
{
    char text[4200], path[4096], link[64], wanted[32], part[4096];
    int saved = errno, number = 0, told;
    ssize_t size;
    const char *name = getenv("FAIL_CALLS");

    if (!name || (told = open(name, O_RDONLY | O_CLOEXEC)) < 0)
        return 0;
    size = read(told, text, sizeof text - 1);
    close(told);
    errno = saved;
    if (size <= 0)
        return 0;
    text[size] = 0;
    /* "pwritev" is meant by pwritev64v2, too. */
    if (sscanf(text, "%31s %d %4095s", wanted, &number, part) != 3 || strncmp(wanted, call, strlen(wanted)))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if ((size = readlink(link, path, sizeof path - 1)) < 0)
        return 0;
    path[size] = 0;
    return strstr(path, part) ? number : 0;
}

#define CALL(type, name, parameters, arguments)                        \
    type name parameters                                               \
    {                                                                  \
        static type (*real) parameters;                                \
        int number = fails(#name, fd);                                 \
        if (number) { errno = number; return -1; }                     \
        if (!real) real = (type (*) parameters) dlsym(RTLD_NEXT, #name); \
        return real arguments;                                         \
    }

CALL(int, fsync, (int fd), (fd))
CALL(int, fdatasync, (int fd), (fd))

/* What Python's os.pwritev and os.pwrite call, by the names that glibc gives them for 64-bit offsets and without. */
#define PARTS int fd, const struct iovec *parts, int count, off_t offset
CALL(ssize_t, pwritev, (PARTS), (fd, parts, count, offset))
CALL(ssize_t, pwritev64, (PARTS), (fd, parts, count, offset))
CALL(ssize_t, pwritev2, (PARTS, int flags), (fd, parts, count, offset, flags))
CALL(ssize_t, pwritev64v2, (PARTS, int flags), (fd, parts, count, offset, flags))
CALL(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t offset), (fd, data, size, offset))
CALL(ssize_t, pwrite64, (int fd, const void *data, size_t size, off_t offset), (fd, data, size, offset))
