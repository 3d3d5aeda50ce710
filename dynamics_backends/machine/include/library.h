/* Properties of a library. */
#pragma once

/* Number of doubles in a vector. */
long lanes(void);
