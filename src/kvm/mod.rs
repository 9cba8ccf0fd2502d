//! What is known of KVM, QEMU and libvirt: tables and pure parsers. No I/O.
