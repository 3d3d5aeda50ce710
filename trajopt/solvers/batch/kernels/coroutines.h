/* Coroutines: functions that wait in their middle and go on later, each on a stack of its own, all on one thread.  Only their first entry
   is the system's (makecontext); from then on two saved places take turns, without a call of the kernel. */
#include <setjmp.h>
#include <ucontext.h>

/* stack, size: given before begin_coroutine(). */
typedef struct {
    jmp_buf inside, outside;
    ucontext_t entry;
    void (*work)(void *);
    void *of;
    int entered, ended;
    char *stack;
    long size;
} coroutine_t;

static __thread coroutine_t *entering;

static void enter_coroutine(void)
{
    coroutine_t *c = entering;
    c->work(c->of);
    c->ended = 1;
    _longjmp(c->outside, 1);
}

static void begin_coroutine(coroutine_t *c, void (*work)(void *), void *of)
{
    c->work = work, c->of = of, c->entered = c->ended = 0;
    getcontext(&c->entry);
    c->entry.uc_stack.ss_sp = c->stack;
    c->entry.uc_stack.ss_size = c->size;
    c->entry.uc_link = NULL;
    makecontext(&c->entry, enter_coroutine, 0);
}

/* Go on with a coroutine until it waits or ends. */
static void go_on(coroutine_t *c)
{
    if (_setjmp(c->outside)) return;
    if (c->entered) _longjmp(c->inside, 1);
    c->entered = 1;
    entering = c;
    setcontext(&c->entry);
}

/* Called within: wait until the next go_on(). */
static void wait_here(coroutine_t *c)
{
    if (!_setjmp(c->inside)) _longjmp(c->outside, 1);
}
