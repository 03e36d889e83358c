/* Records what a process does to the files below one folder, below Python and SQLite: preload it (LD_PRELOAD).
 *
 * POWER_ROOT is the folder, POWER_LOG the file that records are appended to. A record is a header of six numbers and
 * two strings of bytes, see `put`. Real calls are made under one lock, so that records are in the order of the calls.
 * Writes to mapped memory are not seen: a power cut may take all of them (SQLite's -shm file, scratch arrays).
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATE = 1, WRITE, TRUNCATE, ALLOCATE, SYNC, RENAME, LINK, UNLINK, MKDIR, RMDIR, MARK };

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static int log_descriptor = -1;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("POWER_ROOT"), *log = getenv("POWER_LOG");
    if (!folder || !log || strlen(folder) >= sizeof root) return;
    strcpy(root, folder);
    root_length = strlen(root);
    log_descriptor = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_descriptor >= 0) {
        int high = fcntl(log_descriptor, F_DUPFD_CLOEXEC, 900);
        if (high >= 0) { syscall(SYS_close, log_descriptor); log_descriptor = high; }
    }
}

static void put_all(const struct iovec *parts, int count) {
    ssize_t total = 0;
    for (int at = 0; at < count; at++) total += parts[at].iov_len;
    if (syscall(SYS_writev, log_descriptor, parts, count) != total) abort(); /* half a log proves nothing */
}

static void put(int op, uint64_t inode, uint64_t offset, const char *first, uint64_t first_length,
                const char *second, uint64_t second_length) {
    uint64_t head[6] = {op, inode, offset, first_length, second_length, 0};
    struct iovec parts[3] = {{head, sizeof head}, {(void *)first, first_length}, {(void *)second, second_length}};
    put_all(parts, 3);
}

static int inside(const char *path) {
    return log_descriptor >= 0 && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

/* The absolute path, without following links; 0 if it is outside of the folder. */
static int place(int folder, const char *path, char *out) {
    char base[PATH_MAX] = "";
    if (log_descriptor < 0 || !path) return 0;
    if (path[0] != '/') {
        if (folder == AT_FDCWD) {
            if (!getcwd(base, sizeof base)) return 0;
        } else {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            ssize_t length = readlink(link, base, sizeof base - 1);
            if (length < 0) return 0;
            base[length] = 0;
        }
        if (snprintf(out, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return 0;
    } else if (snprintf(out, PATH_MAX, "%s", path) >= PATH_MAX) return 0;
    size_t length = strlen(out);
    while (length > 1 && out[length - 1] == '/') out[--length] = 0;
    return inside(out);
}

/* The inode of an open file below the folder; 0 for others. */
static uint64_t inode_of(int descriptor) {
    char link[64], path[PATH_MAX];
    struct stat status;
    int kept = errno;
    uint64_t found = 0;
    if (log_descriptor < 0 || descriptor == log_descriptor) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0) {
        path[length] = 0;
        if (inside(path) && !fstat(descriptor, &status)) found = status.st_ino;
    }
    errno = kept;
    return found;
}

static uint64_t inode_at(const char *path) {
    struct stat status;
    int kept = errno;
    uint64_t found = lstat(path, &status) ? 0 : status.st_ino;
    errno = kept;
    return found;
}

#define LOCKED(statement) \
    do { pthread_mutex_lock(&turn); statement; int _kept = errno; pthread_mutex_unlock(&turn); errno = _kept; } while (0)

/* Opening */

static int opening(int folder, const char *path, int flags, mode_t mode) {
    char full[PATH_MAX];
    if (!place(folder, path, full) || (flags & O_TMPFILE) == O_TMPFILE) return syscall(SYS_openat, folder, path, flags, mode);
    int result;
    LOCKED({
        uint64_t before = inode_at(full);
        result = syscall(SYS_openat, folder, path, flags, mode);
        if (result >= 0) {
            uint64_t inode = inode_of(result);
            if (!before && (flags & O_CREAT)) put(CREATE, inode, 0, full, strlen(full), 0, 0);
            else if (flags & O_TRUNC) put(TRUNCATE, inode, 0, 0, 0, 0, 0);
        }
    });
    return result;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) { MODE(flags) return opening(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opening(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE(flags) return opening(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE(flags) return opening(folder, path, flags | O_LARGEFILE, mode); }
int creat(const char *path, mode_t mode) { return opening(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

/* Writing */

static void wrote(uint64_t inode, off_t offset, const struct iovec *parts, int count, ssize_t length) {
    for (int at = 0; at < count && length > 0; at++) {
        size_t part = parts[at].iov_len < (size_t)length ? parts[at].iov_len : (size_t)length;
        put(WRITE, inode, offset, 0, 0, parts[at].iov_base, part);
        offset += part;
        length -= part;
    }
}

/* offset < 0: at the file's position, which then is behind the written bytes, with O_APPEND as well. */
static ssize_t writing(int descriptor, const struct iovec *parts, int count, off_t offset) {
    uint64_t inode = inode_of(descriptor);
    ssize_t result;
    if (!inode) {
        if (offset >= 0) return syscall(SYS_pwritev, descriptor, parts, count, offset, 0);
        return syscall(SYS_writev, descriptor, parts, count);
    }
    LOCKED({
        if (offset >= 0) result = syscall(SYS_pwritev, descriptor, parts, count, offset, 0);
        else {
            result = syscall(SYS_writev, descriptor, parts, count);
            if (result > 0) offset = lseek(descriptor, 0, SEEK_CUR) - result;
        }
        if (result > 0) wrote(inode, offset, parts, count, result);
    });
    return result;
}

ssize_t write(int descriptor, const void *data, size_t length) {
    struct iovec part = {(void *)data, length};
    if (!inode_of(descriptor)) return syscall(SYS_write, descriptor, data, length);
    return writing(descriptor, &part, 1, -1);
}
ssize_t pwrite(int descriptor, const void *data, size_t length, off_t offset) {
    struct iovec part = {(void *)data, length};
    return writing(descriptor, &part, 1, offset);
}
ssize_t pwrite64(int descriptor, const void *data, size_t length, off64_t offset) { return pwrite(descriptor, data, length, offset); }
ssize_t writev(int descriptor, const struct iovec *parts, int count) { return writing(descriptor, parts, count, -1); }
ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t offset) { return writing(descriptor, parts, count, offset); }
ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off64_t offset) { return writing(descriptor, parts, count, offset); }

/* What the kernel has copied is read back. */
static void copied(int descriptor, uint64_t inode, off_t offset, ssize_t length) {
    static char data[1 << 16];
    while (length > 0) {
        ssize_t part = syscall(SYS_pread64, descriptor, data, length < (ssize_t)sizeof data ? length : (ssize_t)sizeof data, offset);
        if (part <= 0) { /* opened for writing alone */
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
            int again = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY, 0);
            part = again < 0 ? -1 : syscall(SYS_pread64, again, data, length < (ssize_t)sizeof data ? length : (ssize_t)sizeof data, offset);
            if (again >= 0) syscall(SYS_close, again);
            if (part <= 0) abort();
        }
        put(WRITE, inode, offset, 0, 0, data, part);
        offset += part;
        length -= part;
    }
}

ssize_t sendfile(int out, int in, off_t *offset, size_t count) {
    uint64_t inode = inode_of(out);
    ssize_t result;
    if (!inode) return syscall(SYS_sendfile, out, in, offset, count);
    LOCKED({
        result = syscall(SYS_sendfile, out, in, offset, count);
        if (result > 0) copied(out, inode, lseek(out, 0, SEEK_CUR) - result, result);
    });
    return result;
}
ssize_t sendfile64(int out, int in, off64_t *offset, size_t count) { return sendfile(out, in, offset, count); }

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t length, unsigned flags) {
    uint64_t inode = inode_of(out);
    ssize_t result;
    if (!inode) return syscall(SYS_copy_file_range, in, from, out, to, length, flags);
    LOCKED({
        off_t start = to ? *to : lseek(out, 0, SEEK_CUR);
        result = syscall(SYS_copy_file_range, in, from, out, to, length, flags);
        if (result > 0) copied(out, inode, start, result);
    });
    return result;
}

int ftruncate(int descriptor, off_t length) {
    uint64_t inode = inode_of(descriptor);
    int result;
    LOCKED({
        result = syscall(SYS_ftruncate, descriptor, length);
        if (!result && inode) put(TRUNCATE, inode, length, 0, 0, 0, 0);
    });
    return result;
}
int ftruncate64(int descriptor, off64_t length) { return ftruncate(descriptor, length); }

int truncate(const char *path, off_t length) {
    char full[PATH_MAX];
    int result;
    LOCKED({
        result = syscall(SYS_truncate, path, length);
        if (!result && place(AT_FDCWD, path, full)) put(TRUNCATE, inode_at(full), length, 0, 0, 0, 0);
    });
    return result;
}
int truncate64(const char *path, off64_t length) { return truncate(path, length); }

int posix_fallocate(int descriptor, off_t offset, off_t length) {
    uint64_t inode = inode_of(descriptor);
    int result;
    LOCKED({
        result = REAL(posix_fallocate)(descriptor, offset, length);
        if (!result && inode) put(ALLOCATE, inode, offset + length, 0, 0, 0, 0);
    });
    return result;
}
int posix_fallocate64(int descriptor, off64_t offset, off64_t length) { return posix_fallocate(descriptor, offset, length); }

/* Streams: the C library writes by itself, so that the file is read after it (numpy's `tofile` is one). */

static int streaming(FILE *stream, int (*call)(FILE *)) {
    int descriptor = stream ? fileno(stream) : -1, result;
    uint64_t inode = descriptor < 0 ? 0 : inode_of(descriptor);
    if (!inode) return call(stream);
    LOCKED({
        int kept = dup(descriptor);
        struct stat status;
        result = call(stream);
        if (!fstat(kept, &status)) copied(kept, inode, 0, status.st_size);
        syscall(SYS_close, kept);
    });
    return result;
}
int fclose(FILE *stream) { return streaming(stream, REAL(fclose)); }
int fflush(FILE *stream) { return streaming(stream, REAL(fflush)); }

/* Flushing, of a file or of a folder */

static int syncing(int descriptor, long call) {
    uint64_t inode = inode_of(descriptor);
    int result;
    if (!inode) return syscall(call, descriptor);
    LOCKED({
        result = 0; /* nothing is to be waited for: the log is what counts */
        put(SYNC, inode, 0, 0, 0, 0, 0);
    });
    return result;
}
int fsync(int descriptor) { return syncing(descriptor, SYS_fsync); }
int fdatasync(int descriptor) { return syncing(descriptor, SYS_fdatasync); }

/* Names */

static int renaming(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    char first[PATH_MAX], second[PATH_MAX];
    int result;
    LOCKED({
        int seen = place(from_folder, from, first) & place(to_folder, to, second);
        result = syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
        if (!result && seen) put(RENAME, inode_at(second), 0, first, strlen(first), second, strlen(second));
    });
    return result;
}
int rename(const char *from, const char *to) { return renaming(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int one, const char *from, int other, const char *to) { return renaming(one, from, other, to, 0); }
int renameat2(int one, const char *from, int other, const char *to, unsigned flags) { return renaming(one, from, other, to, flags); }

static int linking(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    char full[PATH_MAX];
    int result;
    LOCKED({
        result = syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
        if (!result && place(to_folder, to, full)) put(LINK, inode_at(full), 0, full, strlen(full), 0, 0);
    });
    return result;
}
int link(const char *from, const char *to) { return linking(AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int one, const char *from, int other, const char *to, int flags) { return linking(one, from, other, to, flags); }

static int removing(int folder, const char *path, int flags) {
    char full[PATH_MAX];
    int result;
    LOCKED({
        int seen = place(folder, path, full);
        char *name = seen ? strrchr(full, '/') + 1 : 0;
        if (seen && !strncmp(name, ".mark-", 6)) put(MARK, 0, 0, name + 6, strlen(name + 6), 0, 0);
        result = syscall(SYS_unlinkat, folder, path, flags);
        if (!result && seen) put(flags & AT_REMOVEDIR ? RMDIR : UNLINK, 0, 0, full, strlen(full), 0, 0);
    });
    return result;
}
int unlink(const char *path) { return removing(AT_FDCWD, path, 0); }
int unlinkat(int folder, const char *path, int flags) { return removing(folder, path, flags); }
int rmdir(const char *path) { return removing(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    struct stat status;
    return !lstat(path, &status) && S_ISDIR(status.st_mode) ? rmdir(path) : unlink(path);
}

static int making(int folder, const char *path, mode_t mode) {
    char full[PATH_MAX];
    int result;
    LOCKED({
        result = syscall(SYS_mkdirat, folder, path, mode);
        if (!result && place(folder, path, full)) put(MKDIR, inode_at(full), 0, full, strlen(full), 0, 0);
    });
    return result;
}
int mkdir(const char *path, mode_t mode) { return making(AT_FDCWD, path, mode); }
int mkdirat(int folder, const char *path, mode_t mode) { return making(folder, path, mode); }
