/* api: what the command and libbelay-nvm share with the library besides the public header. */
#ifndef BELAY_API_H
#define BELAY_API_H

#include "base/base.h"

/* Only what belay.h declares is exported, and what libbelay-nvm calls (below). */
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

/* ---- variables (variables.c): what libbelay-nvm calls -----------------------------------------
 *
 * Each does what belay/nvm.h says of the call of that name, and makes an error the one that the
 * program sees. Exported for libbelay-nvm of the same version only. */
struct belay;
uint64_t belay_private_genid(const char *varname);
void *belay_private_nvalloc(uint64_t id, size_t size, int persistent);
void *belay_private_nv2dalloc(uint64_t dim1, uint64_t dim2);
void *belay_private_nv2dalloc_id(uint64_t id, uint64_t dim1, uint64_t dim2, size_t element,
                                 int persistent);
int belay_private_nvattach(uint64_t id, void *src, size_t size);
void *belay_private_nvrealloc(uint64_t id, void *src, size_t size);
size_t belay_private_nvsize(uint64_t id);
int belay_private_nvdelete(uint64_t id);
int belay_private_nvchkptall(void);
int belay_private_nvchkptid(uint64_t id);
int belay_private_nvclose(void);
struct belay *belay_private_nvcontext(void);

#endif
