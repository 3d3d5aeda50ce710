/* A block of knots in the lanes: knots n, n + 1, .. of one problem, whose rows are contiguous; or, with ABREAST defined, knot n of LANES
   problems of one structure, whose structs are contiguous.  Include sensitivities.h before this file, with ABREAST also rows.h. */

#define LARGER(a, b) ((a) > (b) ? (a) : (b))

typedef struct {
    V x[NX], node[NX], u[NU + 1], p[NP + 1], theta[THETA_ROOM], pg[PG_ROOM + 1], t, dt, next[NX], d[ND], G[ND * NW], l,
        lx[ND], lu[NU + 1], lxx[ND * ND], lux[NU * ND + 1], luu[NU * NU + 1], g[LARGER(NG, NGT) + 1], gx[LARGER(NG, NGT) * ND + 1],
        gu[NG * NU + 1], forces[FORCES_ROOM + 1], phi[FORCES_BENT + 1], block[LARGER(ND, NU) * LARGER(ND, NU)];
} knot_t;

/* PACE: knots per block; BLOCK_AT: index of the block of knot n, counted from the first knot of the phase, with ABREAST from the first knot
   of the call.  LOAD x, STORE x: rows of `width` numbers of an array, of the knots from n on, or of knot n for each lane l; STORE skips NULL
   arrays. */
#ifdef ABREAST
#define PACE 1
#define BLOCK_AT(n) ((n) - first)
#define LOAD(array, n, width, count, x)                                                     \
    {                                                                                       \
        const double *rows[LANES];                                                          \
        for (int l = 0; l < LANES; l++) rows[l] = (array) + (n) * (width);                  \
        pack_rows(rows, width, x);                                                          \
    }
#define STORE(x, width, count, n, array)                                                    \
    {                                                                                       \
        double *rows[LANES];                                                                \
        for (int l = 0; l < LANES; l++) rows[l] = (array) ? (array) + (n) * (width) : NULL; \
        if (rows[0]) unpack_rows(x, width, rows);                                           \
    }
#else
#define PACE LANES
#define BLOCK_AT(n) ((n) / LANES)
#define LOAD(array, n, width, count, x)                                                     \
    {                                                                                       \
        enum { l = 0 };                                                                     \
        pack((array) + (n) * (width), width, count, x);                                     \
    }
#define STORE(x, width, count, n, array)                                                    \
    {                                                                                       \
        enum { l = 0 };                                                                     \
        put_rows(x, width, count, n, array);                                                \
    }
#endif

/* Store rows of `width` numbers from knot n on, unless `out` is NULL. */
ALWAYS_INLINE void put_rows(const V *v, long width, int count, long n, double *out)
{
    if (out) unpack(v, width, count, out + n * width);
}

/* Load the inputs of the block that begins at knot n; returns the number of lanes in use. */
static int load_knots(const stages_t *s, const point_t *at, long n, long last, knot_t *restrict k)
{
    const int count = PACE == 1 || last - n >= LANES ? LANES : (int)(last - n);
    LOAD(at[l].xs, n, NX, count, k->x)
    LOAD(at[l].nodes, n, NX, count, k->node)
    LOAD(at[l].us, n, NU, count, k->u)
    LOAD(s[l].p, n, NP, count, k->p)
    LOAD(s[l].theta, n, NT, count, k->theta)
    LOAD(s[l].pg, n, NPG, count, k->pg)
    LOAD(s[l].t, n, 1, count, &k->t)
    LOAD(s[l].dt, n, 1, count, &k->dt)
    return count;
}

