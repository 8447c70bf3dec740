/* wrap_context.c: setcontext, swapcontext, makecontext.
 *
 * A context brings its own signal mask (uc_sigmask), which must not have SIGSEGV or SIGBUS
 * (wrap_sigmask.c). They are taken out of the context itself, when the program goes there.
 *
 * Where a context returns to is the caller of the function that saved it, and it may return there
 * several times. So nothing of ours may be on the stack between the two: what there is to do is
 * done first, and then the stub jumps to libc's function, which finds the stack and the registers
 * as the program left them.
 *
 * A context that libc saves has the mask of the kernel, without the two, even if the program asked
 * for them: so a context without them says nothing about what the program asks for, and one with
 * them says that the thread asks for them, until it sets its mask in some other way.
 *
 * The stubs exist for x86-64; elsewhere these functions are libc's own. */
#include "wrap/wrap_int.h"

#if defined(__x86_64__)

static unsigned take_out(ucontext_t *context)
{
        unsigned bits = wrap_asked(&context->uc_sigmask);
        if (bits) {
                (void)sigdelset(&context->uc_sigmask, SIGSEGV);
                (void)sigdelset(&context->uc_sigmask, SIGBUS);
        }
        return bits;
}

/* What the stubs call: does what is ours, and says where to go on. */

__attribute__((used)) static void *before_setcontext(ucontext_t *from)
{
        wrap_ask(take_out(from));
        return next_at(NEXT_setcontext);
}

__attribute__((used)) static void *before_swapcontext(ucontext_t *to, ucontext_t *from)
{
        (void)to; /* the kernel stores the mask in it, amid what libc has stored: it is open */
        wrap_ask(take_out(from));
        return next_at(NEXT_swapcontext);
}

/* What comes after the function returns, libc enters past us. That context may have no content
 * yet. */
__attribute__((used)) static void *before_makecontext(const ucontext_t *made)
{
        if (made->uc_link)
                (void)take_out(made->uc_link);
        return next_at(NEXT_makecontext);
}

WRAP_STUB(setcontext);
WRAP_STUB(swapcontext);
WRAP_STUB(makecontext);

#endif
