/* signals.c: a signal that asks for a checkpoint is counted, and handed on to whoever handled it
 * before.
 *
 * One registration per process and signal, shared by all contexts: each compares the count with
 * what it has seen. The handler only adds to a counter. When the last context lets go, the handler
 * before is put back, unless the program has installed another one meanwhile: that one may hand on
 * to ours, so ours stays as it is. */
#include "plat/plat_int.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

/* In the order of the words of the option `signal`. */
static const int numbers[] = {0,       SIGUSR1, SIGUSR2, SIGHUP, SIGINT,
                              SIGTERM, SIGCONT, SIGXCPU, SIGPWR};

#define KINDS ARRAY_LEN(numbers)

static struct {
        atomic_uint count;
        struct sigaction previous; /* written only while ours is not installed */
        unsigned users;
        bool installed;
} caught[KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* rank: none is taken under it */

static void on_signal(int number, siginfo_t *info, void *context)
{
        for (size_t i = 1; i < KINDS; i++) {
                if (numbers[i] != number)
                        continue;
                atomic_fetch_add(&caught[i].count, 1);
                const struct sigaction *old = &caught[i].previous;
                if (old->sa_flags & SA_SIGINFO)
                        old->sa_sigaction(number, info, context);
                else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN)
                        old->sa_handler(number);
        }
}

static bool is_ours(const struct sigaction *a)
{
        return (a->sa_flags & SA_SIGINFO) && a->sa_sigaction == on_signal;
}

static int install(size_t kind)
{
        struct sigaction now;
        if (sigaction(numbers[kind], NULL, &now) < 0)
                return -errno;
        caught[kind].previous = now;
        struct sigaction ours = {.sa_sigaction = on_signal, .sa_mask = now.sa_mask};
        bool handled = (now.sa_flags & SA_SIGINFO) ||
                       (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN);
        /* Whether system calls are interrupted is the program's choice if it has a handler. */
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
        ours.sa_flags |= handled ? now.sa_flags & (SA_RESTART | SA_NODEFER) : SA_RESTART;
        return sigaction(numbers[kind], &ours, NULL) < 0 ? -errno : 0;
}

int signal_system_catch(unsigned kind)
{
        if (kind == 0 || kind >= KINDS)
                return -EINVAL;
        pthread_mutex_lock(&lock);
        int rc = caught[kind].installed ? 0 : install(kind);
        if (rc == 0) {
                caught[kind].installed = true;
                caught[kind].users++;
        }
        pthread_mutex_unlock(&lock);
        return rc;
}

void signal_system_release(unsigned kind)
{
        if (kind == 0 || kind >= KINDS)
                return;
        pthread_mutex_lock(&lock);
        struct sigaction now;
        if (--caught[kind].users == 0 && sigaction(numbers[kind], NULL, &now) == 0 &&
            is_ours(&now) && sigaction(numbers[kind], &caught[kind].previous, NULL) == 0)
                caught[kind].installed = false;
        pthread_mutex_unlock(&lock);
}

uint32_t signal_system_count(unsigned kind)
{
        return kind < KINDS ? atomic_load(&caught[kind].count) : 0;
}
