/* A disk with slow metadata, for benchmarks/network_disk.py: preloaded into a process, it makes each call that asks a
 * file server for a path below $SLOW_FOLDER take $SLOW_MS milliseconds longer. Reading and writing stay as they are. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static void late(const char *path) {
    const char *folder = getenv("SLOW_FOLDER"), *ms = getenv("SLOW_MS");
    if (!folder || !ms || !path || strncmp(path, folder, strlen(folder))) return;
    double seconds = atof(ms) / 1e3;
    struct timespec left = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left)) {}
}

#define CALL(type, name, declared, given, path) \
    type name declared { \
        static type (*next) declared; \
        if (!next) *(void **)&next = dlsym(RTLD_NEXT, #name); \
        late(path); \
        return next given; \
    }

#define OPEN(name, declared, given) \
    int name declared { \
        static int (*next)(); \
        va_list more; \
        mode_t mode = 0; \
        if (!next) *(void **)&next = dlsym(RTLD_NEXT, #name); \
        if (flags & (O_CREAT | O_TMPFILE)) { va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \
        late(path); \
        return next given; \
    }

OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPEN(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode))
CALL(int, stat, (const char *path, struct stat *to), (path, to), path)
CALL(int, stat64, (const char *path, struct stat64 *to), (path, to), path)
CALL(int, lstat, (const char *path, struct stat *to), (path, to), path)
CALL(int, lstat64, (const char *path, struct stat64 *to), (path, to), path)
CALL(int, fstatat, (int at, const char *path, struct stat *to, int flags), (at, path, to, flags), path)
CALL(int, fstatat64, (int at, const char *path, struct stat64 *to, int flags), (at, path, to, flags), path)
CALL(int, statx, (int at, const char *path, int flags, unsigned mask, struct statx *to), (at, path, flags, mask, to), path)
CALL(int, access, (const char *path, int mode), (path, mode), path)
CALL(int, faccessat, (int at, const char *path, int mode, int flags), (at, path, mode, flags), path)
CALL(DIR *, opendir, (const char *path), (path), path)
