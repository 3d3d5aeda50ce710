/* What a library is built for. */
#pragma once

/* Doubles in a vector. */
long lanes(void);
