/* plat_int.h: between the files of plat. */
#ifndef BELAY_PLAT_INT_H
#define BELAY_PLAT_INT_H

#include "plat/plat.h"

int ring_system_new(unsigned depth, struct plat_ring **out);
int ring_system_push(struct plat_ring *ring, enum plat_io io, int fd, void *buf, uint32_t bytes,
                     uint64_t offset, uint32_t tag);
int ring_system_wait(struct plat_ring *ring, uint32_t *tag, int *result);
void ring_system_delete(struct plat_ring *ring);

/* pmem.c */
int pmem_system_map(int fd, uint64_t bytes, struct plat_pmem *pmem, void **out);
void pmem_system_store(const struct plat_pmem *pmem, void *to, const void *from, size_t bytes);
void pmem_system_drain(const struct plat_pmem *pmem);
bool pmem_built_in(void);

/* ports.c */
int port_system_open(const struct plat_peer *as);
int64_t port_system_receive(int fd, void *buf, size_t bytes, struct plat_peer *from);
int port_system_send(int fd, const struct plat_peer *to, const void *buf, size_t bytes);
int port_system_wait(int fd, uint64_t timeout_ms);

/* deaf.c */
int deaf_system_threads(void);

/* signals.c */
int signal_system_catch(unsigned kind);
void signal_system_release(unsigned kind);
uint32_t signal_system_count(unsigned kind);

/* system.c. The same as a descriptor above 2, if it is not one already; the old one is closed. */
int above_standard(int fd);

/* lock_holder.c */
int lock_system_holder(int fd, uint64_t offset);

/* memory.c */
uint64_t memory_system_free(void);
uint64_t memory_system_resident(void);

#endif
