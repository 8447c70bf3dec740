/* test_hostile.c: paths and files that a pool must not be opened from, or must be opened from
 * although they are odd. */
#include "check.h"
#include "pool_image.h"
#include "test_env.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#define NOBODY 65534

/* ---- help ------------------------------------------------------------------------------------ */

static const char *in_dir(const char *name)
{
        static char path[8192];
        snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
        return path;
}

static int open_with(const char *path, const char *media, struct belay **b)
{
        struct belay_config *c = NULL;
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path), 0);
        CHECK_EQ(belay_config_set(c, "media", media), 0);
        CHECK_EQ(belay_config_set(c, "memory", "64MiB"), 0);
        int rc = belay_open(c, b);
        belay_config_delete(&c);
        return rc;
}

static void refused(const char *path, int code, const char *text)
{
        struct belay *b = NULL;
        int rc = open_with(path, "file", &b);
        if (rc != code)
                check_failed(__FILE__, __LINE__, "open of %.200s gives %d, expected %d: %s", path,
                             rc, code, belay_error());
        CHECK(b == NULL);
        CHECK_EQ(belay_error_code(), code);
        CHECK_HAS(belay_error(), text);
}

/* A checkpoint, and its restart by a second context. */
static void works(const char *path)
{
        struct belay *b = NULL;
        uint64_t value = 42;
        if (open_with(path, "file", &b))
                check_failed(__FILE__, __LINE__, "%s", belay_error());
        CHECK_EQ(belay_attach(b, "value", BELAY_U64, 1, &value), 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
        value = 0;
        CHECK_EQ(open_with(path, "file", &b), 0);
        CHECK_EQ(belay_attach(b, "value", BELAY_U64, 1, &value), 0);
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(value, 42);
        CHECK_EQ(belay_close(&b), 0);
}

/* Runs fn in a child; `user` is the one it acts as, 0 for no change. Its failure is ours. */
static void in_child(void (*fn)(const char *path), const char *path, uid_t user)
{
        int status;
        fflush(stdout);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
                /* The folders above may be closed to that user; a working directory stays open. */
                const char *slash = strrchr(path, '/');
                if (user && slash && chdir(test_dir()) == 0)
                        path = slash + 1;
                if (user && (setresgid(user, user, user) || setresuid(user, user, user)))
                        check_failed(__FILE__, __LINE__, "user %u cannot be become",
                                     (unsigned)user);
                fn(path);
                fflush(stdout);
                exit(0);
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
}

static bool can_change_user(void)
{
        if (geteuid() == 0)
                return true;
        printf("  not root: left out\n");
        return false;
}

static unsigned entries_in(const char *path)
{
        unsigned n = 0;
        char command[8300];
        snprintf(command, sizeof(command), "ls -A '%s'", path);
        FILE *f = popen(command, "r");
        CHECK(f != NULL);
        for (int c = fgetc(f); c != EOF; c = fgetc(f))
                n += c == '\n';
        pclose(f);
        return n;
}

/* ---- what is not a regular file -------------------------------------------------------------- */

static void test_directory(void)
{
        char path[8192];
        snprintf(path, sizeof(path), "%s", in_dir("directory"));
        CHECK_EQ(mkdir(path, 0700), 0);
        refused(path, -EISDIR, "directory");
        strcat(path, "/");
        refused(path, -EISDIR, "names a directory");
        refused(".", -EISDIR, "names a directory");
        refused("..", -EISDIR, "names a directory");
        refused("/", -EISDIR, "names a directory");
        refused(in_dir("none/pool"), -ENOENT, "none/pool");
        CHECK_EQ(entries_in(in_dir("directory")), 0);
}

static void test_special_files(void)
{
        char fifo[8192];
        snprintf(fifo, sizeof(fifo), "%s", in_dir("fifo"));
        CHECK_EQ(mkfifo(fifo, 0600), 0);
        refused(fifo, BELAY_E_FORMAT, "is not a regular file");
        refused("/dev/null", BELAY_E_FORMAT, "is not a regular file");
        refused("/dev/zero", BELAY_E_FORMAT, "is not a regular file");
        strcat(fifo, "/pool");
        refused(fifo, -ENOTDIR, "directory of pool");
}

static void test_links(void)
{
        char target[8192];
        char link[8192];
        struct stat st;
        snprintf(target, sizeof(target), "%s", in_dir("real.pool"));
        snprintf(link, sizeof(link), "%s", in_dir("link.pool"));
        works(target);
        CHECK_EQ(symlink(target, link), 0);
        refused(link, -ELOOP, "symbolic link");
        CHECK_EQ(unlink(link), 0);
        CHECK_EQ(symlink(in_dir("planted.pool"), link), 0);
        refused(link, -ELOOP, "symbolic link");
        CHECK(stat(in_dir("planted.pool"), &st) < 0 && errno == ENOENT);
        CHECK_EQ(unlink(link), 0);
        CHECK_EQ(symlink("link.pool", link), 0); /* to itself */
        refused(link, -ELOOP, "symbolic link");
}

/* A link planted under the name that creation uses is not followed either. */
static void test_planted_temporary(void)
{
        char temporary[8192];
        char victim[8192];
        char name[64];
        uint64_t bytes;
        snprintf(name, sizeof(name), ".belay-%016llx.new",
                 (unsigned long long)hash_name("fresh.pool"));
        snprintf(temporary, sizeof(temporary), "%s", in_dir(name));
        snprintf(victim, sizeof(victim), "%s", in_dir("victim"));
        CHECK_EQ(image_write(victim, (const uint8_t *)"precious", 8), 0);
        CHECK_EQ(symlink(victim, temporary), 0);
        struct belay *b = NULL;
        (void)open_with(in_dir("fresh.pool"), "file", &b);
        CHECK_EQ(belay_close(&b), 0);
        uint8_t *after = image_read(victim, &bytes);
        CHECK(after != NULL);
        CHECK_EQ(bytes, 8);
        CHECK_MEM(after, "precious", 8);
        free(after);
        unlink(temporary);
        works(in_dir("fresh.pool"));
}

/* ---- odd files ------------------------------------------------------------------------------- */

/* A pool whose only version has no regions and its manifest at `offset`; the file is `bytes` long.
 */
static void write_manifest_at(const char *path, uint64_t offset, uint64_t bytes)
{
        struct superblock s = {.generation = 1,
                               .pool_bytes = align_up(offset + 1, SLOT_BYTES),
                               .next_version = 2,
                               .version_count = 1};
        struct manifest_head head = {.version = 1};
        uint8_t manifest[MANIFEST_HEAD_BYTES];
        uint8_t super[SUPER_BYTES];
        struct hash128 sum = manifest_seal(manifest, &head);
        s.versions[0] = (struct version_entry){
                .version = 1, .manifest = {offset, sum}, .manifest_bytes = sizeof(manifest)};
        superblock_encode(&s, super);
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        CHECK(fd >= 0);
        CHECK_EQ(ftruncate(fd, (off_t)bytes), 0);
        CHECK_EQ(plat_write_full(fd, super, sizeof(super), 0), 0);
        CHECK_EQ(plat_write_full(fd, manifest, sizeof(manifest), offset), 0);
        CHECK_EQ(close(fd), 0);
}

/* Files that end within a slot: what lies there is known, counted and kept. 4096 slots fill the
 * slot table to its last entry, so that one more is behind its end. */
static void test_cut_within_slot(void)
{
        static const uint64_t slots[] = {2, 3, 100, 4096, 8192};
        static const char *const media[] = {"file", "mapped"};
        char path[8192];
        snprintf(path, sizeof(path), "%s", in_dir("cut.pool"));
        for (size_t i = 0; i < 2 * ARRAY_LEN(slots); i++) {
                struct belay *b = NULL;
                uint64_t offset = slots[i / 2] * SLOT_BYTES;
                struct belay_stats s = {.size = sizeof(s)};
                uint64_t value = 5;
                write_manifest_at(path, offset, offset + 200);
                CHECK_EQ(open_with(path, media[i % 2], &b), 0);
                CHECK_EQ(belay_restart(b), 1);
                CHECK_EQ(belay_stats(b, &s), 0);
                CHECK(s.pool_used <= align_up(s.pool_bytes, SLOT_BYTES));
                CHECK_EQ(belay_attach(b, "value", BELAY_U64, 1, &value), 0);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_detach(b, "value"), 0);
                CHECK_EQ(belay_close(&b), 0);
                CHECK_EQ(open_with(path, media[i % 2], &b), 0);
                if (belay_restart_version(b, 1, 0) != 1)
                        check_failed(__FILE__, __LINE__, "%llu slots, %s: %s",
                                     (unsigned long long)slots[i / 2], media[i % 2], belay_error());
                CHECK_EQ(belay_close(&b), 0);
                CHECK_EQ(unlink(path), 0);
        }
}

/* A file that is no pool stays as it is, the room it takes on the disk included. */
static void test_sparse_file(void)
{
        static const char *const media[] = {"file", "mapped"};
        struct stat before;
        struct stat after;
        const char *path = in_dir("sparse");
        for (size_t i = 0; i < ARRAY_LEN(media); i++) {
                struct belay *b = NULL;
                CHECK_EQ(image_write(path, (const uint8_t *)"notes", 5), 0);
                CHECK_EQ(truncate(path, 16 << 20), 0);
                CHECK_EQ(stat(path, &before), 0);
                CHECK_EQ(open_with(path, media[i], &b), BELAY_E_FORMAT);
                CHECK_EQ(stat(path, &after), 0);
                CHECK_EQ(after.st_size, before.st_size);
                CHECK_EQ(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
                CHECK_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
                /* The first write may reach the disk meanwhile and take a few blocks. */
                if (after.st_blocks > before.st_blocks + 64)
                        check_failed(__FILE__, __LINE__,
                                     "%s: the file took %lld blocks, it takes %lld now", media[i],
                                     (long long)before.st_blocks, (long long)after.st_blocks);
        }
}

/* ---- permissions ----------------------------------------------------------------------------- */

static void expect_no_access(const char *path)
{
        refused(path, -EACCES, "Permission denied");
}

static void expect_no_creation(const char *path)
{
        refused(path, -EACCES, "cannot be created: Permission denied");
}

static void expect_not_ours(const char *path)
{
        refused(path, -EPERM, "belongs to another user");
}

static void test_permissions(void)
{
        if (!can_change_user())
                return;
        CHECK_EQ(chmod(test_dir(), 0755), 0);
        works(in_dir("private.pool"));
        in_child(expect_no_access, in_dir("private.pool"), NOBODY);
        /* Writable by everyone, and still not ours: whoever owns it could have planted it. */
        CHECK_EQ(chmod(in_dir("private.pool"), 0666), 0);
        in_child(expect_not_ours, in_dir("private.pool"), NOBODY);
        in_child(expect_no_creation, in_dir("new.pool"), NOBODY);
        CHECK_EQ(chown(in_dir("private.pool"), NOBODY, NOBODY), 0);
        refused(in_dir("private.pool"), -EPERM, "belongs to another user");
        in_child(works, in_dir("private.pool"), NOBODY);
        CHECK_EQ(chmod(in_dir("private.pool"), 0400), 0);
        in_child(expect_no_access, in_dir("private.pool"), NOBODY);
}

static void test_mode(void)
{
        struct stat st;
        mode_t old = umask(0);
        works(in_dir("mode.pool"));
        umask(old);
        CHECK_EQ(stat(in_dir("mode.pool"), &st), 0);
        CHECK_EQ(st.st_mode & 07777, 0600);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void test_odd_names(void)
{
        static const char *const names[] = {
                "with space.pool", "new\nline.pool",      "tab\tand\x7f.pool",
                "quote'\".pool",   "größe-温度.pool",     "-rf",
                "%s%n%d.pool",     "$(touch x);`y`.pool", "back\\slash.pool",
                "\xff\xfe.pool",   "*?[a].pool",          "#comment"};
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                works(in_dir(names[i]));
        /* Nothing but the pools appeared. */
        char name[256];
        memset(name, 'n', 255);
        name[255] = '\0';
        works(in_dir(name));
        char longer[300];
        memset(longer, 'n', 256);
        longer[256] = '\0';
        refused(in_dir(longer), -ENAMETOOLONG, "File name too long");
}

/* A path of `length` bytes: directories with long names, made one by one since no single call
 * could. */
static void make_deep(char *path, size_t length)
{
        int dir = open(test_dir(), O_RDONLY | O_DIRECTORY);
        CHECK(dir >= 0);
        int at = snprintf(path, length + 1, "%s", test_dir());
        while ((size_t)at + 210 < length) {
                char name[201];
                memset(name, 'd', 200);
                name[200] = '\0';
                CHECK(mkdirat(dir, name, 0700) == 0 || errno == EEXIST);
                int next = openat(dir, name, O_RDONLY | O_DIRECTORY);
                CHECK(next >= 0);
                close(dir);
                dir = next;
                at += snprintf(path + at, length + 1 - (size_t)at, "/%s", name);
        }
        close(dir);
        path[at++] = '/';
        memset(path + at, 'p', length - (size_t)at);
        path[length] = '\0';
}

static void test_long_path(void)
{
        static char path[5000];
        make_deep(path, 4095);
        CHECK_EQ(strlen(path), 4095);
        works(path);
        unlink(path);
        struct belay_config *c = NULL;
        path[4095] = 'p';
        path[4096] = '\0';
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path), -EINVAL);
        CHECK_HAS(belay_error(), "1 to 4095 bytes");
        CHECK_EQ(belay_config_set(c, "pool", ""), -EINVAL);
        belay_config_delete(&c);
}

/* ---- in use ---------------------------------------------------------------------------------- */

static char busy_text[64];

static void expect_busy(const char *path)
{
        refused(path, -EBUSY, busy_text);
}

static void test_in_use(void)
{
        struct belay *b = NULL;
        uint64_t bytes;
        CHECK_EQ(open_with(in_dir("busy.pool"), "file", &b), 0);
        uint8_t *before = image_read(in_dir("busy.pool"), &bytes);
        CHECK(before != NULL);
        snprintf(busy_text, sizeof(busy_text), "in use by process %d", (int)getpid());
        expect_busy(in_dir("busy.pool"));
        in_child(expect_busy, in_dir("busy.pool"), 0);
        uint64_t now;
        uint8_t *after = image_read(in_dir("busy.pool"), &now);
        CHECK(after != NULL);
        CHECK_EQ(now, bytes);
        CHECK_MEM(before, after, bytes);
        free(before);
        free(after);
        CHECK_EQ(belay_close(&b), 0);
        works(in_dir("busy.pool"));
}

static int ready_pipe[2];

static void hold(const char *path)
{
        struct belay *b = NULL;
        uint64_t value = 7;
        CHECK_EQ(open_with(path, "file", &b), 0);
        CHECK_EQ(belay_attach(b, "value", BELAY_U64, 1, &value), 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(write(ready_pipe[1], "r", 1), 1);
        for (;;)
                pause();
}

static void test_killed_owner(void)
{
        char go;
        int status;
        struct belay *b = NULL;
        uint64_t value = 0;
        const char *path = in_dir("killed.pool");
        CHECK_EQ(pipe(ready_pipe), 0);
        fflush(stdout);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
                hold(path);
        close(ready_pipe[1]); /* so that a child that fails ends the wait */
        CHECK_EQ(read(ready_pipe[0], &go, 1), 1);
        close(ready_pipe[0]);
        snprintf(busy_text, sizeof(busy_text), "in use by process %d", (int)child);
        expect_busy(path);
        CHECK_EQ(kill(child, SIGKILL), 0);
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(open_with(path, "file", &b), 0);
        CHECK_EQ(belay_attach(b, "value", BELAY_U64, 1, &value), 0);
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(value, 7);
        CHECK_EQ(belay_close(&b), 0);
}

int main(void)
{
        test_env_clean();
        RUN(test_directory);
        RUN(test_special_files);
        RUN(test_links);
        RUN(test_planted_temporary);
        RUN(test_cut_within_slot);
        RUN(test_sparse_file);
        RUN(test_permissions);
        RUN(test_mode);
        RUN(test_odd_names);
        RUN(test_long_path);
        RUN(test_in_use);
        RUN(test_killed_owner);
        return 0;
}
