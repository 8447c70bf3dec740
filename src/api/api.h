/* api: what the command shares with the library besides the public header. */
#ifndef BELAY_API_H
#define BELAY_API_H

#include "base/base.h"

/* Fills in defaults and the user's file and environment. */
int config_load(struct options *o);

#endif
