// A program with the names of functions of the kernel, which the kernel's own tests of ftrace trace. It writes an r, and calls
// them until its standard input ends: main all of them, every millisecond, and a thread schedule. Its argument is a library, which it
// loads and says so when it reads an l, and unloads when it reads a u.
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define FUNCTION(name) \
    __attribute__((noipa)) void name(void) { __asm__ volatile("" ::: "memory"); }
#define CALLER(name, ...) \
    __attribute__((noipa)) void name(void) { __asm__ volatile("nop; nop"); __VA_ARGS__; __asm__ volatile(""); }

FUNCTION(mutex_unlock)
FUNCTION(mutex_unlock_slowpath)
FUNCTION(raw_spin_lock)
FUNCTION(raw_spin_trylock)
FUNCTION(pin_user_lock)
FUNCTION(cmpxchg_unlock)
FUNCTION(scheduler_tick)
FUNCTION(schedule)
FUNCTION(schedule_idle)
FUNCTION(sys_read)
FUNCTION(Sys_write)
FUNCTION(kernel_halt)
CALLER(kernel_clone, mutex_unlock())
CALLER(do_execveat, kernel_clone())
CALLER(everything, schedule(); raw_spin_lock(); do_execveat(); scheduler_tick(); sys_read(); Sys_write();
       raw_spin_trylock(); pin_user_lock(); cmpxchg_unlock(); mutex_unlock_slowpath(); schedule_idle())

static void *thread(void *unused)
{
    for (;;) {
        schedule();
        usleep(2000);
    }
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t t;
    struct pollfd in = {.fd = 0, .events = POLLIN};
    void *module = 0;
    char c;
    if (argc < 2 || pthread_create(&t, 0, thread, 0) != 0)
        return 1;
    write(1, "r", 1);
    for (;;) {
        while (poll(&in, 1, 1) == 0)
            everything();
        if (read(0, &c, 1) != 1) {
            for (int i = 0; i < 3000; i++)
                kernel_halt();
            return 0;
        }
        if (c == 'l' && !module)
            module = dlopen(argv[1], RTLD_NOW);
        else if (c == 'u' && module && dlclose(module) == 0)
            module = 0;
        write(1, module ? "l" : "u", 1);
    }
}
