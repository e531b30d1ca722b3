// A library with the name of one of the kernel's modules, and of a function of it.
static volatile int calls;
__attribute__((noipa)) void trace_printk_irq_work(void)
{
    for (int i = 0; i < 3; i++)
        calls++;
}
__attribute__((constructor)) static void init(void) { trace_printk_irq_work(); }
