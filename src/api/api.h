/* api: what the command shares with the library besides the public header. */
#ifndef BELAY_API_H
#define BELAY_API_H

#include "base/base.h"

/* Only what belay.h declares is exported. */
#pragma GCC visibility push(hidden)

/* Fills in defaults and the user's file and environment. */
int config_load(struct options *o);

/* ---- requests from outside (requests.c): the command asks, the library answers ----------------
 *
 * Context n of process PID listens under the abstract name belay-PID-n, n < PORTS. The user is not
 * in the name, since root may ask too; who asks and who answers is known from the kernel. Both ends
 * are on one machine, so the datagrams are structs as they are in memory. */
#define PORTS          64
#define REQUEST_MAGIC  0x31715942u /* "BYq1" */
#define ANSWER_MAGIC   0x31615942u /* "BYa1" */
#define PORT_NAME_SIZE 64
struct request {
        uint32_t magic;
        uint32_t number; /* the answer has the same */
};
struct answer {
        uint32_t magic;
        uint32_t number;
        uint64_t version;
        int32_t code; /* 0: the version is published; else why not */
        char text[228];
};
void port_name(int pid, unsigned n, char out[PORT_NAME_SIZE]);

#pragma GCC visibility pop

#endif
