/* What asks for a checkpoint, and who is told how it ended. Time is the test's own. */
#include "api/api.h"
#include "check.h"
#include "plat/plat.h"
#include "test_env.h"
#include <belay/belay.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#define S UINT64_C(1000000000)

static struct plat_calls calls;
static uint64_t now;
static char logged[4096];

static uint64_t fake_now(void)
{
        return now;
}

static uint64_t fake_started(void)
{
        return now - 30 * S;
}

static int no_socket(const struct plat_peer *as)
{
        (void)as;
        return -EPERM;
}

static int64_t no_append(int fd, const void *buf, size_t bytes)
{
        (void)fd;
        (void)buf;
        (void)bytes;
        return -ENOSPC;
}

/* A disk that becomes full in the middle of a line. */
static int64_t half_append(int fd, const void *buf, size_t bytes)
{
        return plat_system.append(fd, buf, bytes / 2);
}

static void keep_log(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        (void)level;
        size_t n = strlen(logged);
        snprintf(logged + n, sizeof(logged) - n, "%s\n", text);
}

static void begin(void)
{
        calls = plat_system;
        plat = &calls;
        now = 1000 * S;
        logged[0] = '\0';
        belay_log_sink(keep_log, NULL, BELAY_LOG_DEBUG);
}

static const char *path_of(const char *name)
{
        static char path[4096];
        snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
        return path;
}

static struct belay *open_with(const char *name, const char *const *options)
{
        struct belay_config *c;
        struct belay *b = NULL;
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path_of(name)), 0);
        for (; options && options[0]; options += 2)
                CHECK_EQ(belay_config_set(c, options[0], options[1]), 0);
        CHECK_EQ(belay_open(c, &b), 0);
        belay_config_delete(&c);
        CHECK(belay_alloc(b, "x", BELAY_U8, 100000) != NULL);
        return b;
}
#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})

static int open_files(void)
{
        DIR *d = opendir("/proc/self/fd");
        int n = 0;
        CHECK(d != NULL);
        while (readdir(d))
                n++;
        closedir(d);
        return n;
}

/* ---- times ----------------------------------------------------------------------------------- */

static void test_nothing(void)
{
        begin();
        int before = open_files();
        struct belay *b = open_with("nothing", NULL);
        CHECK_EQ(belay_should_checkpoint(b), 0);
        CHECK_STR(belay_trigger(b), "");
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_should_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(open_files(), before);
        CHECK_EQ(belay_should_checkpoint(NULL), -EINVAL);
        CHECK_STR(belay_trigger(NULL), "");
}

static void test_interval(void)
{
        begin();
        calls.now_ns = fake_now;
        struct belay *b = open_with("interval", OPTIONS("interval", "1.5m"));
        char text[16];
        CHECK_EQ(belay_get(b, "interval", text, sizeof(text)), 0);
        CHECK_STR(text, "90s");
        now += 89 * S;
        CHECK_EQ(belay_should_checkpoint(b), 0);
        now += S;
        CHECK_EQ(belay_should_checkpoint(b), 1);
        CHECK_EQ(belay_should_checkpoint(b), 1);
        CHECK_STR(belay_trigger(b), "interval");
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_STR(belay_trigger(b), "");
        now += 89 * S;
        CHECK_EQ(belay_should_checkpoint(b), 0);
        /* A restart makes the state fresh. */
        CHECK_EQ(belay_restart(b), 1);
        now += 89 * S;
        CHECK_EQ(belay_should_checkpoint(b), 0);
        now += S;
        CHECK_EQ(belay_should_checkpoint(b), 1);
        CHECK_EQ(belay_close(&b), 0);
}

static void test_wall_clock(void)
{
        begin();
        calls.now_ns = fake_now;
        calls.started_ns = fake_started;
        struct belay *b = open_with("wall", OPTIONS("wall_clock", "100", "wall_margin", "10s"));
        now += 59 * S;
        CHECK_EQ(belay_should_checkpoint(b), 0);
        now += S;
        CHECK_EQ(belay_should_checkpoint(b), 1);
        CHECK_STR(belay_trigger(b), "wall_clock");
        CHECK_EQ(belay_checkpoint(b), 0);
        now += 1000 * S;
        CHECK_EQ(belay_should_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
}

/* The only thing in a checkpoint that takes time. */
static int slow_fdatasync(int fd)
{
        now += S;
        return plat_system.fdatasync(fd);
}

static void test_overhead(void)
{
        begin();
        calls.now_ns = fake_now;
        struct belay *b = open_with("overhead", OPTIONS("overhead", "0.1%", "media", "file"));
        calls.fdatasync = slow_fdatasync;
        CHECK_EQ(belay_should_checkpoint(b), 0);
        now += 20 * S;
        CHECK_EQ(belay_should_checkpoint(b), 1);
        CHECK_STR(belay_trigger(b), "overhead");
        uint64_t before = now;
        CHECK_EQ(belay_checkpoint(b), 0);
        uint64_t took = now - before;
        CHECK(took >= S);
        /* 1000 times what it took, from its beginning on. */
        now = before + 1000 * took - 1;
        CHECK_EQ(belay_should_checkpoint(b), 0);
        now++;
        CHECK_EQ(belay_should_checkpoint(b), 1);
        CHECK_EQ(belay_close(&b), 0);
}

static void test_started(void)
{
        begin();
        uint64_t started = plat->started_ns();
        uint64_t here = plat->now_ns();
        /* The kernel counts in hundredths of a second; this process is younger than an hour. */
        CHECK(started <= here && here - started < 3600 * S);
}

static void test_refused_options(void)
{
        static const struct {
                const char *key, *value, *text;
        } bad[] = {{"interval", "-1", "a time such as 90s"},
                   {"interval", "5w", "a time"},
                   {"interval", "5 ms", "a time"},
                   {"interval", "1.", "a time"},
                   {"interval", "5mm", "a time"},
                   {"interval", "99999999999999", "a time"},
                   {"interval", "0.0000000001", "a time"},
                   {"overhead", "101", "from 0 to 100"},
                   {"overhead", "5s", "from 0 to 100"},
                   {"signal", "KILL", "it must be one of none|USR1"}};
        struct belay_config *c;
        CHECK_EQ(belay_config_new(&c), 0);
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                CHECK_EQ(belay_config_set(c, bad[i].key, bad[i].value), -EINVAL);
                CHECK_HAS(belay_error(), bad[i].text);
        }
        belay_config_delete(&c);
}

/* ---- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t handled;

static void own_handler(int number)
{
        handled += number == SIGUSR1;
}

static void test_signal(void)
{
        begin();
        struct sigaction own = {.sa_handler = own_handler};
        struct sigaction after;
        CHECK_EQ(sigaction(SIGUSR1, &own, NULL), 0);
        struct belay *a = open_with("signal-a", OPTIONS("signal", "USR1"));
        struct belay *b = open_with("signal-b", OPTIONS("signal", "USR1"));
        struct belay *deaf = open_with("signal-c", NULL);
        CHECK_EQ(belay_should_checkpoint(a), 0);
        CHECK_EQ(raise(SIGUSR1), 0);
        CHECK_EQ(handled, 1);
        CHECK_EQ(belay_should_checkpoint(a), 1);
        CHECK_STR(belay_trigger(a), "signal");
        CHECK_EQ(belay_checkpoint(a), 0);
        CHECK_EQ(belay_should_checkpoint(a), 0);
        /* Each context hears it. */
        CHECK_EQ(belay_should_checkpoint(b), 1);
        CHECK_EQ(belay_should_checkpoint(deaf), 0);
        CHECK_EQ(belay_close(&a), 0);
        CHECK_EQ(raise(SIGUSR1), 0);
        CHECK_EQ(handled, 2);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_should_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(belay_close(&deaf), 0);
        CHECK_EQ(sigaction(SIGUSR1, NULL, &after), 0);
        CHECK(after.sa_handler == own_handler);
}

/* However often the program asks, the answer is the same until it makes the checkpoint; that one
 * serves all signals that came before it. */
static void test_signal_until_checkpoint(void)
{
        begin();
        CHECK(signal(SIGUSR1, own_handler) != SIG_ERR);
        struct belay *b = open_with("signal-until", OPTIONS("signal", "USR1"));
        CHECK_EQ(raise(SIGUSR1), 0);
        for (int i = 0; i < 3; i++) {
                CHECK_EQ(belay_should_checkpoint(b), 1);
                CHECK_STR(belay_trigger(b), "signal");
        }
        CHECK_EQ(raise(SIGUSR1), 0);
        CHECK_EQ(belay_should_checkpoint(b), 1);
        CHECK_EQ(belay_checkpoint(b), 0);
        for (int i = 0; i < 3; i++) {
                CHECK_EQ(belay_should_checkpoint(b), 0);
                CHECK_STR(belay_trigger(b), "");
        }
        /* A version that is given up serves none. */
        CHECK_EQ(raise(SIGUSR1), 0);
        CHECK_EQ(belay_should_checkpoint(b), 1);
        CHECK_EQ(belay_begin(b), 0);
        CHECK_EQ(belay_abort(b), 0);
        CHECK_EQ(belay_should_checkpoint(b), 1);
        CHECK_EQ(belay_should_checkpoint(b), 1);
        CHECK_EQ(belay_begin(b), 0);
        CHECK_EQ(belay_end(b), 0);
        CHECK_EQ(belay_should_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
}

/* A handler that the program installs later, and that hands on to ours, stays. */
static struct sigaction below;

static void later_handler(int number, siginfo_t *info, void *context)
{
        handled++;
        below.sa_sigaction(number, info, context);
}

static void test_signal_later_handler(void)
{
        begin();
        struct sigaction later = {.sa_sigaction = later_handler, .sa_flags = SA_SIGINFO};
        for (int round = 0; round < 2; round++) {
                struct belay *b = open_with("signal-later", OPTIONS("signal", "USR2"));
                if (round == 0)
                        CHECK_EQ(sigaction(SIGUSR2, &later, &below), 0);
                handled = 0;
                CHECK_EQ(raise(SIGUSR2), 0);
                CHECK_EQ(handled, 1);
                CHECK_EQ(belay_should_checkpoint(b), 1);
                CHECK_EQ(belay_close(&b), 0);
        }
        CHECK_EQ(raise(SIGUSR2), 0);
        CHECK_EQ(handled, 2);
}

/* ---- requests -------------------------------------------------------------------------------- */

static int ask(unsigned context, const void *bytes, size_t length)
{
        char name[PORT_NAME_SIZE];
        struct plat_peer to;
        int fd = plat_system.port_open(NULL);
        CHECK(fd >= 0);
        port_name(getpid(), context, name);
        peer_named(name, &to);
        CHECK_EQ(plat_system.port_send(fd, &to, bytes, length), 0);
        return fd;
}

static int request(unsigned context, uint32_t number)
{
        struct request q = {.magic = REQUEST_MAGIC, .number = number};
        return ask(context, &q, sizeof(q));
}

/* The answer on fd, which is closed; false if there is none. */
static bool answered(int fd, struct answer *out)
{
        struct plat_peer from;
        int64_t n = plat_system.port_receive(fd, out, sizeof(*out), &from);
        if (n == -EAGAIN)
                return false;
        CHECK_EQ(n, sizeof(*out));
        CHECK_EQ(from.pid, getpid());
        CHECK_EQ(out->magic, ANSWER_MAGIC);
        close(fd);
        return true;
}

static void requests_with(const char *policy)
{
        begin();
        struct answer a;
        struct belay *b = open_with(policy, OPTIONS("policy", policy));
        struct belay *other = open_with("other", NULL);
        int one = request(0, 7);
        int two = request(0, 8);
        CHECK_EQ(belay_should_checkpoint(other), 0);
        for (int i = 0; i < 2; i++) {
                CHECK_EQ(belay_should_checkpoint(b), 1);
                CHECK_STR(belay_trigger(b), "request");
        }
        CHECK(!answered(one, &a));
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_should_checkpoint(b), 0);
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        CHECK(answered(one, &a));
        CHECK_EQ(a.number, 7);
        CHECK_EQ(a.version, belay_version(b));
        CHECK_EQ(a.code, 0);
        CHECK(answered(two, &a));
        CHECK_EQ(a.number, 8);
        /* One that nobody looked for is served by the next checkpoint all the same. */
        int three = request(0, 9);
        int four = request(1, 10);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
        CHECK(answered(three, &a));
        CHECK_EQ(a.code, 0);
        CHECK_EQ(belay_close(&other), 0);
        CHECK(answered(four, &a));
        CHECK_EQ(a.code, -ECANCELED);
}

static void test_requests(void)
{
        requests_with("sync");
        requests_with("async");
        requests_with("adaptive");
}

static void test_request_of_failing_checkpoint(void)
{
        begin();
        struct answer a;
        struct belay *b = open_with("full", OPTIONS("limit", "16KiB", "media", "file"));
        int fd = request(0, 1);
        CHECK_EQ(belay_should_checkpoint(b), 1);
        memset(belay_ptr(b, "x"), 1, 100000);
        CHECK_EQ(belay_checkpoint(b), BELAY_E_CHECKPOINT);
        CHECK(answered(fd, &a));
        CHECK_EQ(a.code, BELAY_E_CHECKPOINT);
        CHECK(a.text[0] != '\0');
        CHECK_EQ(belay_should_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
}

static void test_request_garbage(void)
{
        begin();
        struct belay *b = open_with("garbage", NULL);
        struct request q = {.magic = 1, .number = 1};
        char large[1000] = {0};
        close(ask(0, "", 0));
        close(ask(0, &q, sizeof(q)));
        close(ask(0, &q, 3));
        close(ask(0, large, sizeof(large)));
        CHECK_EQ(belay_should_checkpoint(b), 0);
        /* Whoever asks may leave; more than can wait are turned away. */
        int last = -1;
        for (unsigned i = 0; i < 20; i++) {
                if (last >= 0)
                        close(last);
                last = request(0, i);
                CHECK_EQ(belay_should_checkpoint(b), 1);
        }
        struct answer a;
        CHECK(answered(last, &a));
        CHECK_EQ(a.code, -EBUSY);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_should_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
}

static void test_port_is_closed_on_exec(void)
{
        begin();
        struct belay *b = open_with("exec", NULL);
        int sockets = 0;
        for (int fd = 3; fd < 256; fd++) {
                struct stat st;
                if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode)) {
                        sockets++;
                        CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
                        CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
                }
        }
        CHECK(sockets >= 1);
        CHECK_EQ(belay_close(&b), 0);
}

static void test_no_sockets(void)
{
        begin();
        calls.port_open = no_socket;
        struct belay *b = open_with("no-sockets", NULL);
        CHECK_HAS(logged, "cannot reach this context");
        CHECK_EQ(belay_should_checkpoint(b), 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
        begin();
        b = open_with("no-sockets", OPTIONS("requests", "no"));
        CHECK_STR(logged, "");
        CHECK_EQ(belay_close(&b), 0);
}

/* ---- file of statistics ---------------------------------------------------------------------- */

static char *content(const char *name)
{
        static char text[65536];
        int fd = open(path_of(name), O_RDONLY);
        CHECK(fd >= 0);
        ssize_t n = read(fd, text, sizeof(text) - 1);
        CHECK(n >= 0);
        text[n] = '\0';
        close(fd);
        return text;
}

static unsigned lines(const char *text)
{
        unsigned n = 0;
        for (; *text != '\0'; text++)
                n += *text == '\n';
        return n;
}

static void stats_with(const char *policy)
{
        begin();
        char file[4096];
        snprintf(file, sizeof(file), "%s", path_of("stats"));
        struct belay *b = open_with("stats.pool", OPTIONS("stats_file", file, "policy", policy));
        for (int i = 0; i < 3; i++) {
                ((uint8_t *)belay_ptr(b, "x"))[i]++;
                CHECK_EQ(belay_checkpoint(b), 0);
        }
        uint64_t version = belay_version(b);
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        CHECK_EQ(lines(content("stats")), 3);
        CHECK_EQ(belay_should_checkpoint(b), 0);
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_stats(b, &s), 0);
        CHECK_EQ(belay_close(&b), 0);
        const char *text = content("stats");
        CHECK_EQ(lines(text), 3);
        char wanted[64];
        snprintf(wanted, sizeof(wanted), "\"version\":%llu,\"state\":\"published\"",
                 (unsigned long long)version);
        CHECK_HAS(text, wanted);
        CHECK_HAS(text, "\"trigger\":\"call\"");
        snprintf(wanted, sizeof(wanted), "\"last_commit_ns\":%llu,",
                 (unsigned long long)s.last_commit_ns);
        CHECK_HAS(text, wanted);
        CHECK_HAS(text, "}\n");
        struct stat st;
        CHECK_EQ(stat(file, &st), 0);
        CHECK_EQ(st.st_mode & 0777, 0600);
        CHECK_EQ(unlink(file), 0);
}

static void test_stats_file(void)
{
        stats_with("sync");
        stats_with("async");
        stats_with("adaptive");
}

static void test_stats_of_failed(void)
{
        begin();
        char file[4096];
        snprintf(file, sizeof(file), "%s", path_of("failed"));
        struct belay *b = open_with("f\"\\\n.pool",
                                    OPTIONS("stats_file", file, "limit", "16KiB", "media", "file"));
        memset(belay_ptr(b, "x"), 1, 100000);
        CHECK_EQ(belay_checkpoint(b), BELAY_E_CHECKPOINT);
        CHECK_EQ(belay_close(&b), 0);
        const char *text = content("failed");
        CHECK_EQ(lines(text), 1);
        CHECK_HAS(text, "\"state\":\"failed\"");
        CHECK_HAS(text, "\"error\":\"");
        CHECK_HAS(text, "\"checkpoints_failed\":1");
        CHECK(!strstr(text, "last_"));
}

static void refused_file(const char *file, const char *why)
{
        begin();
        struct belay *b = open_with("refused.pool", OPTIONS("stats_file", file));
        CHECK_HAS(logged, why);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
}

static void test_stats_file_refused(void)
{
        char link[4096];
        char fifo[4096];
        snprintf(link, sizeof(link), "%s", path_of("link"));
        CHECK_EQ(symlink("/dev/null", link), 0);
        refused_file(link, "symbolic link");
        refused_file("/nowhere/stats", "No such file");
        refused_file(test_dir(), "directory");
        refused_file("/dev/null", "Invalid argument");
        snprintf(fifo, sizeof(fifo), "%s", path_of("fifo"));
        CHECK_EQ(mkfifo(fifo, 0600), 0);
        refused_file(fifo, "cannot be written");
}

static void test_stats_file_full(void)
{
        begin();
        char file[4096];
        snprintf(file, sizeof(file), "%s", path_of("torn"));
        struct belay *b = open_with("torn.pool", OPTIONS("stats_file", file));
        calls.append = no_append;
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_HAS(logged, "No space left");
        logged[0] = '\0';
        calls.append = half_append;
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK(!strstr(logged, "statistics"));
        /* The torn line is ended before the next. */
        calls.append = plat_system.append;
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
        const char *text = content("torn");
        CHECK_EQ(lines(text), 2);
        CHECK_HAS(strchr(text, '\n'), "\n{\"time_ns\"");
}

int main(void)
{
        test_env_clean();
        RUN(test_nothing);
        RUN(test_interval);
        RUN(test_wall_clock);
        RUN(test_overhead);
        RUN(test_started);
        RUN(test_refused_options);
        RUN(test_signal);
        RUN(test_signal_until_checkpoint);
        RUN(test_signal_later_handler);
        RUN(test_requests);
        RUN(test_request_of_failing_checkpoint);
        RUN(test_request_garbage);
        RUN(test_port_is_closed_on_exec);
        RUN(test_no_sockets);
        RUN(test_stats_file);
        RUN(test_stats_of_failed);
        RUN(test_stats_file_refused);
        RUN(test_stats_file_full);
        return 0;
}
