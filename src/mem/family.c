/* family.c: what the fault handler needs to know of the process: that it is the one whose commits
 * it serves, not a child of it, and that the handler is in place. */
#include "mem/mem_int.h"
#include <pthread.h>

static void before_fork(void)
{
        spans_lock();
}

static void after_fork(void)
{
        spans_unlock();
}

static uint32_t families = 1;

/* The child has no flusher: its writes must not wait for one. It has no other threads either, so
 * nobody is looking anything up. */
static void in_child(void)
{
        atomic_store(guard_family, ++families);
        atomic_store(&span_table_readers, 0);
        spans_unlock();
}

static void watch_forks(void)
{
        _Atomic uint32_t *page = plat_page_of_this_process();
        if (page) {
                atomic_store(page, families);
                guard_family = page;
        }
        (void)pthread_atfork(before_fork, after_fork, in_child);
}

uint32_t family_ready(void)
{
        static pthread_once_t once = PTHREAD_ONCE_INIT;
        pthread_once(&once, watch_forks);
        return atomic_load(guard_family);
}

int faults_ready(void)
{
        spans_lock();
        int rc = faults_catch(guard_fault);
        spans_unlock();
        return rc;
}
