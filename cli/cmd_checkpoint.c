/* cmd_checkpoint.c: belay checkpoint: asks a running program for a checkpoint.
 *
 * The request goes to every context of the process and waits there until the program looks
 * (belay_should_checkpoint). Answers count only if the kernel says that they come from that
 * process.
 */
#include "api/api.h"
#include "cli.h"
#include "plat/plat.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* How often to see whether the process is still there. */
#define LOOK_MS 100u

struct asking {
        int pid, fd;
        unsigned asked, answered, failed;
        bool ended; /* the process */
        struct answer answers[PORTS];
};

/* The number of contexts that were reached is in `asked`. */
static enum status ask(struct asking *a)
{
        if (!plat->process_exists(a->pid))
                return complain("there is no process %d", a->pid);
        a->fd = plat->port_open(NULL);
        if (a->fd < 0)
                return complain("no socket: %s", code_text(a->fd));
        int full = 0;
        for (unsigned n = 0; n < PORTS; n++) {
                char name[PORT_NAME_SIZE];
                struct plat_peer to;
                struct request q = {.magic = REQUEST_MAGIC, .number = n};
                port_name(a->pid, n, name);
                peer_named(name, &to);
                int rc = plat->port_send(a->fd, &to, &q, sizeof(q));
                a->asked += rc == 0;
                full += rc == -EAGAIN;
        }
        if (a->asked)
                return FINE;
        if (full)
                return complain("process %d has not looked at earlier requests yet", a->pid);
        return complain("process %d has no open pool that could be asked", a->pid);
}

static void receive(struct asking *a)
{
        struct answer answer;
        struct plat_peer from;
        int64_t n = plat->port_receive(a->fd, &answer, sizeof(answer), &from);
        if (n != (int64_t)sizeof(answer) || answer.magic != ANSWER_MAGIC || from.pid != a->pid ||
            a->answered == PORTS)
                return;
        answer.text[sizeof(answer.text) - 1] = '\0';
        a->failed += answer.code != 0;
        a->answers[a->answered++] = answer;
}

static void wait_for_answers(struct asking *a, uint64_t wait_ns)
{
        uint64_t begin = plat->now_ns();
        while (a->answered < a->asked) {
                uint64_t passed = plat->now_ns() - begin;
                if (passed >= wait_ns)
                        return;
                /* First the question, then the look: an answer sent just before the end counts. */
                bool alive = plat->process_exists(a->pid) == 1;
                uint64_t left_ms = (wait_ns - passed) / 1000000u + 1;
                if (plat->port_wait(a->fd, alive ? min_u64(left_ms, LOOK_MS) : 0) == 1) {
                        receive(a);
                } else if (!alive) {
                        a->ended = true;
                        return;
                }
        }
}

static void print_json(const struct asking *a)
{
        struct json j;
        json_begin(&j);
        json_number(&j, "pid", (uint64_t)a->pid);
        json_number(&j, "asked", a->asked);
        json_open(&j, "answers", '[');
        for (unsigned i = 0; i < a->answered; i++) {
                const struct answer *answer = &a->answers[i];
                json_open(&j, NULL, '{');
                json_bool(&j, "published", answer->code == 0);
                json_number(&j, "version", answer->version);
                if (answer->code)
                        json_text(&j, "error", answer->text);
                json_close(&j, '}');
        }
        json_close(&j, ']');
        json_end(&j);
}

static void print_text(const struct asking *a, bool waited)
{
        if (!waited)
                say("process %d: asked for a checkpoint of %u %s", a->pid, a->asked,
                    a->asked == 1 ? "pool" : "pools");
        for (unsigned i = 0; i < a->answered; i++) {
                const struct answer *answer = &a->answers[i];
                if (answer->code)
                        say("process %d: no checkpoint: %s", a->pid, answer->text);
                else
                        say("process %d: version %llu published", a->pid,
                            (unsigned long long)answer->version);
        }
}

/* Seconds as a number; -1 after a complaint. */
static double parse_seconds(const char *text)
{
        char *end;
        double s = strtod(text, &end);
        if (*end == '\0' && end != text && isfinite(s) && s >= 0 && s <= 1e9)
                return s;
        (void)complain("'%s' is no number of seconds", text);
        return -1;
}

static int parse_pid(const char *text)
{
        char *end;
        errno = 0;
        long n = strtol(text, &end, 10);
        if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && n > 0 &&
            n <= INT32_MAX)
                return (int)n;
        (void)complain("'%s' is no process number", text);
        return 0;
}

static enum status run(const struct args *args)
{
        static struct asking a;
        bool wait = args->given[ARG_WAIT];
        double seconds = wait ? parse_seconds(args->value[ARG_WAIT]) : 0;
        a.pid = parse_pid(args->words[0]);
        if (a.pid == 0 || seconds < 0)
                return TROUBLE;
        enum status status = ask(&a);
        if (status != FINE)
                return status;
        if (wait)
                wait_for_answers(&a, (uint64_t)(seconds * 1e9));
        (void)plat->close(a.fd);
        if (args->given[ARG_JSON])
                print_json(&a);
        else
                print_text(&a, wait);
        if (wait && a.answered < a.asked)
                return complain(a.ended ? "process %d ended before it answered"
                                        : "process %d has not published a checkpoint in time; the "
                                          "request stands",
                                a.pid);
        return a.failed ? FOUND : FINE;
}

const struct command cmd_checkpoint = {
        .name = "checkpoint",
        .usage = "PID [--wait SECONDS] [--json]",
        .summary = "ask a running program for a checkpoint",
        .help = "The program takes it when it next calls belay_should_checkpoint. With --wait the "
                "command says\n"
                "which version was published; exit status 1 means that the checkpoint failed. Only "
                "the user who\n"
                "runs the program, and root, may ask.",
        .takes = TAKES(ARG_WAIT) | TAKES(ARG_JSON) | TAKES(ARG_HELP),
        .least = 1,
        .most = 1,
        .run = run,
};
