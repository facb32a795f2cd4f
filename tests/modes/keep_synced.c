/* What a power cut leaves: LD_PRELOAD this, and each file under $KEEP_SYNCED_ROOT that is synced is copied, before it is, to
 * $KEEP_SYNCED_MIRROR/<device>-<inode>. A process that was killed has then left there what was on the disk.
 *
 * The copy is made before the sync, and so has nothing that the sync did not cover. It stays even if the process dies in between:
 * pages may reach the disk unasked. The descriptor of each file is kept, so that its inode number is not given to another file.
 *
 * fsync and fdatasync cover the whole file, msync the part of the file that stands in the memory it is given: a JVM writes to
 * mappings, and syncs these.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_HELD 65536
#define FIRST_HELD 512 /* above the descriptors that the program uses itself */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ino_t held[MOST_HELD];
static int held_count;

static void hold(int fd, ino_t inode)
{
    int at;

    for (at = held_count - 1; at >= 0; at--)
        if (held[at] == inode)
            return;
    if (held_count == MOST_HELD || fcntl(fd, F_DUPFD_CLOEXEC, FIRST_HELD) < 0)
        abort(); /* an inode number that is used again would be taken for the old file */
    held[held_count++] = inode;
}

/* Copy the bytes of a file from `at` to `end`, or to the end of the file for -1. */
static void keep(int fd, off_t at, off_t end)
{
    static char buffer[1 << 20];
    char link[64], path[4096], name[4200];
    const char *root = getenv("KEEP_SYNCED_ROOT"), *mirror = getenv("KEEP_SYNCED_MIRROR");
    struct stat found;
    int saved = errno, out, is_whole = end < 0;
    ssize_t size;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, path, sizeof path - 1);
    if (!root || !mirror || size < 0 || fstat(fd, &found) || !S_ISREG(found.st_mode))
        return;
    path[size] = 0;
    if (strncmp(path, root, strlen(root)))
        return;
    if (is_whole)
        end = (off_t)1 << 62;
    pthread_mutex_lock(&lock);
    hold(fd, found.st_ino);
    snprintf(name, sizeof name, "%s/%lu-%lu", mirror, (unsigned long)found.st_dev, (unsigned long)found.st_ino);
    /* A descriptor may be for writing alone: the file is opened again to be read. */
    int in = open(link, O_RDONLY | O_CLOEXEC);
    out = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (in < 0 || out < 0)
        abort();
    while (at < end) {
        size_t most = end - at < (off_t)sizeof buffer ? (size_t)(end - at) : sizeof buffer;

        if ((size = pread(in, buffer, most, at)) <= 0)
            break;
        if (pwrite(out, buffer, size, at) != size)
            abort();
        at += size;
    }
    if (is_whole && ftruncate(out, at))
        abort();
    close(in);
    close(out);
    pthread_mutex_unlock(&lock);
    errno = saved;
}

/* Keep what the mappings of files between two addresses show. */
static void keep_mapped(unsigned long from, unsigned long to)
{
    const char *root = getenv("KEEP_SYNCED_ROOT");
    char line[4400];
    int saved = errno;
    FILE *maps = root ? fopen("/proc/self/maps", "re") : NULL;

    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end, offset;
        int at = 0, fd;

        if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %n", &start, &end, &offset, &at) < 3 || !at || end <= from || start >= to)
            continue;
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line + at, root, strlen(root)))
            continue;
        /* A file that was deleted has no name to be opened by, and none that a power cut could leave. */
        if ((fd = open(line + at, O_RDONLY | O_CLOEXEC)) < 0)
            continue;
        unsigned long first = from > start ? from : start, last = to < end ? to : end;

        keep(fd, offset + (first - start), offset + (last - start));
        close(fd);
    }
    if (maps)
        fclose(maps);
    errno = saved;
}

int fsync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");

    keep(fd, 0, -1);
    return real(fd);
}

int fdatasync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");

    keep(fd, 0, -1);
    return real(fd);
}

int msync(void *memory, size_t size, int flags)
{
    int (*real)(void *, size_t, int) = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "msync");

    keep_mapped((unsigned long)memory, (unsigned long)memory + size);
    return real(memory, size, flags);
}
