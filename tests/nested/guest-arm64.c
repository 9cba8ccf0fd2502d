/*
 * A guest of two vCPUs for an arm64 host, with the kernel's own interrupt controller. vCPU 1 does known work and
 * sleeps; vCPU 0 sleeps, takes interrupts, and writes to its console as ordered. Orders come by standard input:
 *   go              vCPU 1 works
 *   line N, irqfd N each of N interrupts finds vCPU 0 asleep
 *   console N       vCPU 0 writes N bytes, one at a time, and is interrupted by `line` meanwhile
 * After each the guest says "done", and how many interrupts vCPU 0 has taken. At its end it says what it did.
 *
 * With arguments it is a terminal instead: `TEXT KEY TEXT KEY PROGRAM...` runs a program in a pseudo terminal, types
 * each key once the program has written the text after the key before, and prints all that it writes.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <pty.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define RAM 0x40000000UL
#define SIZE 0x10000
#define SPI 3 /* the console's interrupt is another: this one is free */
#define HVCS 307
#define REGISTERS 211

/* Where the devices of QEMU's machine `virt` are (hw/arm/virt.c). */
asm(".pushsection .rodata\n"
    ".macro put to, value\n mov w1, #\\value\n str w1, [x2, #\\to]\n.endm\n"
    ".macro times n\n mov x1, #\\n\n0:\n.endm\n"
    ".macro end_times\n subs x1, x1, #1\n b.ne 0b\n.endm\n"
    ".balign 2048\n"
    ".global code, worker, code_end\ncode:\n"
    /* vCPU 0: the interrupt controller (distributor at 0x8000000): group 1, the line enabled, by its edge. */
        " ldr x9, =0x4000f000\n ldr x2, =0x08000000\n"
    " put 0, 2\n put 0x104, 8\n put 0xc08, 0x80\n"
    " mov x1, #0xff\n msr ICC_PMR_EL1, x1\n mov x1, #1\n msr ICC_IGRPEN1_EL1, x1\n"
    " adr x1, vectors\n msr VBAR_EL1, x1\n isb\n"
    "doze:\n"
    " msr daifset, #2\n ldr w4, [x9, #4]\n cbnz w4, print\n"
    " wfi\n msr daifclr, #2\n isb\n b doze\n"
    "print:\n"
    " msr daifclr, #2\n ldr x2, =0x09000000\n"
    "0: strb w4, [x2]\n subs w4, w4, #1\n b.ne 0b\n"
    " str wzr, [x9, #4]\n b doze\n"
    /* vCPU 1: pl011, virtio-mmio (the second), pl031, the configuration of PCIe, hypercalls, trapped registers. */
    "worker:\n"
    " ldr x9, =0x4000f000\n"
    " ldr x2, =0x09000000\n times 1201\n ldr w3, [x2, #0x18]\n end_times\n"
    " ldr x2, =0x0a000200\n times 503\n str w3, [x2, #0x50]\n end_times\n"
    " ldr x2, =0x09010000\n times 101\n ldr w3, [x2]\n end_times\n"
    " ldr x2, =0x3f000000\n times 57\n ldr w3, [x2]\n end_times\n"
    " mov x5, #307\n"
    "0: mov x0, #0x84000000\n hvc #0\n subs x5, x5, #1\n b.ne 0b\n" /* PSCI_VERSION */
    " times 211\n mrs x3, ID_AA64PFR0_EL1\n end_times\n"
    " mov w1, #1\n str w1, [x9, #8]\n"
    "0: wfi\n b 0b\n"
    ".ltorg\n"
    ".balign 2048\n"
    "vectors:\n .space 0x280\n" /* an interrupt at the current level */
    " mrs x20, ICC_IAR1_EL1\n msr ICC_EOIR1_EL1, x20\n"
    " ldr w21, [x9]\n add w21, w21, #1\n str w21, [x9]\n eret\n"
    "code_end:\n.popsection");
extern const char code[], worker[], code_end[];

static int kvm, vm, vcpus[2], eventfd_of_line;
static char *ram;
static volatile int go;
/* Interrupts taken, bytes to write, whether vCPU 1 is done. */
static volatile uint32_t *taken, *order, *done;
/* Accesses that user space served: pl011 read and written, virtio-mmio, pl031, PCIe. */
static unsigned long served[5];

static void control(int fd, unsigned long request, void *argument, const char *what)
{
	if (ioctl(fd, request, argument) < 0)
		err(1, "%s", what);
}

static int kind(uint64_t address, int is_write)
{
	if (address >> 12 == 0x09000)
		return is_write;
	return address >> 12 == 0x0a000 ? 2 : address >> 12 == 0x09010 ? 3 : 4;
}

static void *run(void *number)
{
	long i = (long)number;
	int size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	struct kvm_run *run = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpus[i], 0);
	char name[16];

	snprintf(name, sizeof(name), "CPU %ld/KVM", i);
	prctl(PR_SET_NAME, name);
	while (!go)
		usleep(1000);
	for (;;) {
		control(vcpus[i], KVM_RUN, 0, "KVM_RUN");
		if (run->exit_reason != KVM_EXIT_MMIO)
			errx(1, "exit to user space for %d", run->exit_reason);
		memset(run->mmio.data, 0, sizeof(run->mmio.data));
		__atomic_fetch_add(&served[kind(run->mmio.phys_addr, run->mmio.is_write)], 1, __ATOMIC_RELAXED);
	}
}

static void until(volatile uint32_t *word, uint32_t value, const char *what)
{
	for (int i = 0; i < 60000; i++) {
		if (*word == value)
			return;
		usleep(1000);
	}
	errx(1, "%s: %u instead of %u after 60 s", what, *word, value);
}

static void interrupt(int by_eventfd)
{
	struct kvm_irq_level line = { .irq = KVM_ARM_IRQ_TYPE_SPI << KVM_ARM_IRQ_TYPE_SHIFT | (32 + SPI) };
	uint32_t before = *taken;

	if (by_eventfd) {
		eventfd_write(eventfd_of_line, 1);
	} else {
		for (line.level = 1; (int)line.level >= 0; line.level--)
			control(vm, KVM_IRQ_LINE, &line, "KVM_IRQ_LINE");
	}
	until(taken, before + 1, "interrupts taken");
}

static void create(void)
{
	struct kvm_userspace_memory_region memory = { .guest_phys_addr = RAM, .memory_size = SIZE };
	struct kvm_create_device gic = { .type = KVM_DEV_TYPE_ARM_VGIC_V3 };
	uint64_t places[2] = { 0x08000000, 0x080a0000 };
	struct kvm_irqfd irqfd = { .gsi = SPI };

	if ((kvm = open("/dev/kvm", O_RDWR)) < 0 || (vm = ioctl(kvm, KVM_CREATE_VM, 0)) < 0)
		err(1, "/dev/kvm");
	ram = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memcpy(ram, code, code_end - code);
	taken = (void *)(ram + 0xf000), order = taken + 1, done = taken + 2;
	memory.userspace_addr = (uint64_t)ram;
	control(vm, KVM_SET_USER_MEMORY_REGION, &memory, "memory");
	for (long i = 0; i < 2; i++) {
		struct kvm_vcpu_init init;
		uint64_t pc = RAM + (i ? worker - code : 0);
		struct kvm_one_reg reg = { 0x6030000000100040, (uint64_t)&pc };

		if ((vcpus[i] = ioctl(vm, KVM_CREATE_VCPU, i)) < 0)
			err(1, "KVM_CREATE_VCPU");
		control(vm, KVM_ARM_PREFERRED_TARGET, &init, "target");
		init.features[0] |= 1 << KVM_ARM_VCPU_PSCI_0_2;
		control(vcpus[i], KVM_ARM_VCPU_INIT, &init, "init");
		control(vcpus[i], KVM_SET_ONE_REG, &reg, "pc");
	}
	control(vm, KVM_CREATE_DEVICE, &gic, "interrupt controller");
	for (int i = 0; i < 2; i++) {
		struct kvm_device_attr place = { .group = KVM_DEV_ARM_VGIC_GRP_ADDR, .attr = KVM_VGIC_V3_ADDR_TYPE_DIST + i };

		place.addr = (uint64_t)&places[i];
		control(gic.fd, KVM_SET_DEVICE_ATTR, &place, "address");
	}
	control(gic.fd, KVM_SET_DEVICE_ATTR,
		&(struct kvm_device_attr){ .group = KVM_DEV_ARM_VGIC_GRP_CTRL, .attr = KVM_DEV_ARM_VGIC_CTRL_INIT }, "init");
	irqfd.fd = eventfd_of_line = eventfd(0, 0);
	control(vm, KVM_IRQFD, &irqfd, "irqfd");
}

static int terminal(char **words)
{
	struct winsize size = { .ws_row = 100, .ws_col = 140 };
	static char text[1 << 20];
	size_t end = 0;
	int fd, typed = 0;
	ssize_t n;

	if (!forkpty(&fd, 0, 0, &size)) {
		execv(words[4], words + 4);
		_exit(127);
	}
	while ((n = read(fd, text + end, sizeof(text) - end)) > 0) {
		if (write(1, text + end, n) < 0)
			return 1;
		end += n;
		if (typed < 2 && memmem(text, end, words[2 * typed], strlen(words[2 * typed]))) {
			if (write(fd, words[2 * typed + 1], 1) < 0)
				return 1;
			typed++;
			end = 0;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	char word[16];
	unsigned n;
	pthread_t threads[2];

	if (argc > 5)
		return terminal(argv + 1);
	create();
	setvbuf(stdout, 0, _IOLBF, 0);
	for (long i = 0; i < 2; i++)
		pthread_create(&threads[i], 0, run, (void *)i);
	puts("ready");
	while (n = 0, scanf("%15s %u", word, &n) > 0) {
		if (!strcmp(word, "go")) {
			go = 1;
			until(done, 1, "work");
		} else if (!strcmp(word, "console")) {
			*order = n;
			do {
				interrupt(0);
				usleep(10000);
			} while (*order);
		} else {
			for (unsigned i = 0; i < n; i++) {
				usleep(3000); /* asleep again */
				interrupt(!strcmp(word, "irqfd"));
			}
		}
		printf("done %u\n", *taken);
	}
	for (int i = 0; i < 5; i++)
		printf("%lu ", served[i]);
	printf("%d %d\n", HVCS, REGISTERS);
	return 0;
}
