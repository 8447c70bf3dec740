/* handler.h: the process's fault handler. */
#ifndef BELAY_MEM_SIG_HANDLER_H
#define BELAY_MEM_SIG_HANDLER_H

/* Makes ours the handler of SIGSEGV and SIGBUS if it is not; what was there before is called for
 * foreign faults. Not safe against itself: the caller holds the registry's lock. */
int handler_install(void);

#endif
