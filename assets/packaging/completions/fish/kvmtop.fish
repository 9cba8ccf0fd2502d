# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_kvmtop_global_optspecs
    string join \n b/batch json n/count= d/interval= engine= no-monitor libvirt-uri= kvm-events engine-detail= domain= warn= allow= config= ascii no-color theme= mouse h/help V/version
end

function __fish_kvmtop_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_kvmtop_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_kvmtop_using_subcommand
    set -l cmd (__fish_kvmtop_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c kvmtop -n "__fish_kvmtop_needs_command" -s n -l count -d 'Stop after N intervals (with --batch)' -r
complete -c kvmtop -n "__fish_kvmtop_needs_command" -s d -l interval -d 'Seconds between samples, 0.1 to 60 [default: 1]' -r
complete -c kvmtop -n "__fish_kvmtop_needs_command" -l engine -d 'How exits are counted [default: auto]' -r -f -a "auto\t'bpf where possible, else perf, else none'
bpf\t'Counted inside the kernel by BPF programs: cheapest'
perf\t'Tracepoints through perf rings'
none\t'No tracing: KVM\'s own counters and /proc'"
complete -c kvmtop -n "__fish_kvmtop_needs_command" -l libvirt-uri -d 'The libvirt connection to use [default: libvirt\'s own choice]' -r
complete -c kvmtop -n "__fish_kvmtop_needs_command" -l engine-detail -d 'What to trace beyond exits and the scheduler; each costs the guests something' -r -f -a "disks\t'What the host\'s block devices take for the guests\' requests'
interrupts\t'What interrupts vCPUs, and how long it is on its way'"
complete -c kvmtop -n "__fish_kvmtop_needs_command" -l domain -d 'Only these guests: a glob on the name, a UUID or a PID; repeatable' -r
complete -c kvmtop -n "__fish_kvmtop_needs_command" -l warn -d 'Raise the severity of these findings by one step' -r
complete -c kvmtop -n "__fish_kvmtop_needs_command" -l allow -d 'Hide these findings; `all` hides all but those of --warn' -r
complete -c kvmtop -n "__fish_kvmtop_needs_command" -l config -d 'Read this config file instead of the usual one' -r -F
complete -c kvmtop -n "__fish_kvmtop_needs_command" -l theme -d 'Colours: auto, dark, light, 16 or mono [default: auto]' -r
complete -c kvmtop -n "__fish_kvmtop_needs_command" -s b -l batch -d 'Print each interval as a text table'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -l json -d 'One JSON object a line instead of tables (with --batch)'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -l no-monitor -d 'Never talk to the QEMU monitor (devices are then named from tables)'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -l kvm-events -d 'Also count every kvm tracepoint for each guest'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -l ascii -d 'Draw with ASCII characters only'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -l no-color -d 'Draw without colour (as with the variable `NO_COLOR`)'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -l mouse -d 'Let kvmtop have the mouse: a click selects, shows a view or sorts, the wheel scrolls'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -s V -l version -d 'Print version'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -f -a "record" -d 'Record samples into a session file, until the duration ends or Ctrl-C'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -f -a "replay" -d 'Show a recorded session on the screen: pause, step, seek, speed'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -f -a "report" -d 'Read files instead of a live host: exits, accesses, threads, findings'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -f -a "diff" -d 'Compare two inputs: what changed, and what is noise'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -f -a "plan" -d 'Plan where all guests should run on this host, or on that of files'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -f -a "check" -d 'Watch this host for a while and print what is wrong'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -f -a "profile" -d 'Sample what a guest\'s host threads do: the functions that take their CPU time'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -f -a "doctor" -d 'Print what this host hides from kvmtop, and how to enable it'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -f -a "export" -d 'Serve metrics to Prometheus, until Ctrl-C'
complete -c kvmtop -n "__fish_kvmtop_needs_command" -f -a "demo" -d 'Show a recording of real guests that ships with kvmtop'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand record" -l duration -d 'How long to record, such as 10m [default: until Ctrl-C]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand record" -l max-size -d 'Limit the size, such as 500M; the oldest samples go first' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand record" -l max-age -d 'Limit the age of samples, such as 7d; the oldest go first' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand record" -s d -l interval -d 'Seconds between samples, 0.1 to 60 [default: 1]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand record" -l engine -d 'How exits are counted [default: auto]' -r -f -a "auto\t'bpf where possible, else perf, else none'
bpf\t'Counted inside the kernel by BPF programs: cheapest'
perf\t'Tracepoints through perf rings'
none\t'No tracing: KVM\'s own counters and /proc'"
complete -c kvmtop -n "__fish_kvmtop_using_subcommand record" -l libvirt-uri -d 'The libvirt connection to use [default: libvirt\'s own choice]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand record" -l engine-detail -d 'What to trace beyond exits and the scheduler; each costs the guests something' -r -f -a "disks\t'What the host\'s block devices take for the guests\' requests'
interrupts\t'What interrupts vCPUs, and how long it is on its way'"
complete -c kvmtop -n "__fish_kvmtop_using_subcommand record" -l domain -d 'Only these guests: a glob on the name, a UUID or a PID; repeatable' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand record" -l warn -d 'Raise the severity of these findings by one step' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand record" -l allow -d 'Hide these findings; `all` hides all but those of --warn' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand record" -l config -d 'Read this config file instead of the usual one' -r -F
complete -c kvmtop -n "__fish_kvmtop_using_subcommand record" -l no-monitor -d 'Never talk to the QEMU monitor (devices are then named from tables)'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand record" -l kvm-events -d 'Also count every kvm tracepoint for each guest'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand record" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand replay" -l at -d 'Begin at 14:03, 2026-11-21T14:03, +10m (from the start) or -10m' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand replay" -l html -d 'Write the recording as one HTML page, as report does (- for stdout)' -r -F
complete -c kvmtop -n "__fish_kvmtop_using_subcommand replay" -s n -l count -d 'Stop after N intervals (with --batch)' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand replay" -l domain -d 'Only these guests: a glob on the name, a UUID or a PID; repeatable' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand replay" -l warn -d 'Raise the severity of these findings by one step' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand replay" -l allow -d 'Hide these findings; `all` hides all but those of --warn' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand replay" -l config -d 'Read this config file instead of the usual one' -r -F
complete -c kvmtop -n "__fish_kvmtop_using_subcommand replay" -l theme -d 'Colours: auto, dark, light, 16 or mono [default: auto]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand replay" -s b -l batch -d 'Print each interval as a text table'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand replay" -l json -d 'One JSON object a line instead of tables (with --batch)'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand replay" -l ascii -d 'Draw with ASCII characters only'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand replay" -l no-color -d 'Draw without colour (as with the variable `NO_COLOR`)'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand replay" -l mouse -d 'Let kvmtop have the mouse: a click selects, shows a view or sorts, the wheel scrolls'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand replay" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand report" -l html -d 'Write one self-contained HTML page to FILE (- for stdout)' -r -F
complete -c kvmtop -n "__fish_kvmtop_using_subcommand report" -l duration -d 'The time that a text table covers, such as 10s (tables omit it)' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand report" -l vcpus -d 'How many vCPUs the guest of a text table has' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand report" -l at -d 'Read one interval of a session: 14:03, +10m or -10m [default: all]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand report" -l domain -d 'Only these guests: a glob on the name, a UUID or a PID; repeatable' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand report" -l warn -d 'Raise the severity of these findings by one step' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand report" -l allow -d 'Hide these findings; `all` hides all but those of --warn' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand report" -l config -d 'Read this config file instead of the usual one' -r -F
complete -c kvmtop -n "__fish_kvmtop_using_subcommand report" -l perf-times -d 'Time accesses as perf does, not by the whole exit'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand report" -l json -d 'Print one JSON object'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand report" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand diff" -l duration -d 'The time that a text table covers, such as 10s (tables omit it)' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand diff" -l vcpus -d 'How many vCPUs the guest of a text table has' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand diff" -l at -d 'Read one interval of a session: 14:03, +10m or -10m [default: all]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand diff" -l domain -d 'Only these guests: a glob on the name, a UUID or a PID; repeatable' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand diff" -l warn -d 'Raise the severity of these findings by one step' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand diff" -l allow -d 'Hide these findings; `all` hides all but those of --warn' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand diff" -l config -d 'Read this config file instead of the usual one' -r -F
complete -c kvmtop -n "__fish_kvmtop_using_subcommand diff" -l perf-times -d 'Time accesses as perf does, not by the whole exit'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand diff" -l json -d 'Print one JSON object'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand diff" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand plan" -l at -d 'Read one interval of a session: 14:03, +10m or -10m [default: all]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand plan" -s d -l interval -d 'Seconds between samples, 0.1 to 60 [default: 1]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand plan" -l engine -d 'How exits are counted [default: auto]' -r -f -a "auto\t'bpf where possible, else perf, else none'
bpf\t'Counted inside the kernel by BPF programs: cheapest'
perf\t'Tracepoints through perf rings'
none\t'No tracing: KVM\'s own counters and /proc'"
complete -c kvmtop -n "__fish_kvmtop_using_subcommand plan" -l libvirt-uri -d 'The libvirt connection to use [default: libvirt\'s own choice]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand plan" -l engine-detail -d 'What to trace beyond exits and the scheduler; each costs the guests something' -r -f -a "disks\t'What the host\'s block devices take for the guests\' requests'
interrupts\t'What interrupts vCPUs, and how long it is on its way'"
complete -c kvmtop -n "__fish_kvmtop_using_subcommand plan" -l domain -d 'Only these guests: a glob on the name, a UUID or a PID; repeatable' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand plan" -l warn -d 'Raise the severity of these findings by one step' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand plan" -l allow -d 'Hide these findings; `all` hides all but those of --warn' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand plan" -l config -d 'Read this config file instead of the usual one' -r -F
complete -c kvmtop -n "__fish_kvmtop_using_subcommand plan" -l json -d 'Print one JSON object'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand plan" -l no-monitor -d 'Never talk to the QEMU monitor (devices are then named from tables)'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand plan" -l kvm-events -d 'Also count every kvm tracepoint for each guest'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand check" -l duration -d 'How long to watch, such as 30s [default: 10s]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand check" -s d -l interval -d 'Seconds between samples, 0.1 to 60 [default: 1]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand check" -l engine -d 'How exits are counted [default: auto]' -r -f -a "auto\t'bpf where possible, else perf, else none'
bpf\t'Counted inside the kernel by BPF programs: cheapest'
perf\t'Tracepoints through perf rings'
none\t'No tracing: KVM\'s own counters and /proc'"
complete -c kvmtop -n "__fish_kvmtop_using_subcommand check" -l libvirt-uri -d 'The libvirt connection to use [default: libvirt\'s own choice]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand check" -l engine-detail -d 'What to trace beyond exits and the scheduler; each costs the guests something' -r -f -a "disks\t'What the host\'s block devices take for the guests\' requests'
interrupts\t'What interrupts vCPUs, and how long it is on its way'"
complete -c kvmtop -n "__fish_kvmtop_using_subcommand check" -l domain -d 'Only these guests: a glob on the name, a UUID or a PID; repeatable' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand check" -l warn -d 'Raise the severity of these findings by one step' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand check" -l allow -d 'Hide these findings; `all` hides all but those of --warn' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand check" -l config -d 'Read this config file instead of the usual one' -r -F
complete -c kvmtop -n "__fish_kvmtop_using_subcommand check" -l json -d 'Print one JSON object'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand check" -l list-rules -d 'Print each rule\'s name and what it sees, and exit'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand check" -l no-monitor -d 'Never talk to the QEMU monitor (devices are then named from tables)'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand check" -l kvm-events -d 'Also count every kvm tracepoint for each guest'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand profile" -l duration -d 'How long to sample, such as 30s' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand profile" -l folded -d 'Print folded stacks, for flame graphs'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand profile" -l json -d 'Print one JSON object'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand profile" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand doctor" -s d -l interval -d 'Seconds between samples, 0.1 to 60 [default: 1]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand doctor" -l engine -d 'How exits are counted [default: auto]' -r -f -a "auto\t'bpf where possible, else perf, else none'
bpf\t'Counted inside the kernel by BPF programs: cheapest'
perf\t'Tracepoints through perf rings'
none\t'No tracing: KVM\'s own counters and /proc'"
complete -c kvmtop -n "__fish_kvmtop_using_subcommand doctor" -l libvirt-uri -d 'The libvirt connection to use [default: libvirt\'s own choice]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand doctor" -l engine-detail -d 'What to trace beyond exits and the scheduler; each costs the guests something' -r -f -a "disks\t'What the host\'s block devices take for the guests\' requests'
interrupts\t'What interrupts vCPUs, and how long it is on its way'"
complete -c kvmtop -n "__fish_kvmtop_using_subcommand doctor" -l config -d 'Read this config file instead of the usual one' -r -F
complete -c kvmtop -n "__fish_kvmtop_using_subcommand doctor" -l json -d 'Print one JSON object'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand doctor" -l no-monitor -d 'Never talk to the QEMU monitor (devices are then named from tables)'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand doctor" -l kvm-events -d 'Also count every kvm tracepoint for each guest'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand export" -l listen -d 'The address and port to serve on' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand export" -l web-config -d 'Serve by TLS and ask for passwords, as this file of Prometheus\' exporters says' -r -F
complete -c kvmtop -n "__fish_kvmtop_using_subcommand export" -s d -l interval -d 'Seconds between samples, 0.1 to 60 [default: 1]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand export" -l engine -d 'How exits are counted [default: auto]' -r -f -a "auto\t'bpf where possible, else perf, else none'
bpf\t'Counted inside the kernel by BPF programs: cheapest'
perf\t'Tracepoints through perf rings'
none\t'No tracing: KVM\'s own counters and /proc'"
complete -c kvmtop -n "__fish_kvmtop_using_subcommand export" -l libvirt-uri -d 'The libvirt connection to use [default: libvirt\'s own choice]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand export" -l engine-detail -d 'What to trace beyond exits and the scheduler; each costs the guests something' -r -f -a "disks\t'What the host\'s block devices take for the guests\' requests'
interrupts\t'What interrupts vCPUs, and how long it is on its way'"
complete -c kvmtop -n "__fish_kvmtop_using_subcommand export" -l domain -d 'Only these guests: a glob on the name, a UUID or a PID; repeatable' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand export" -l warn -d 'Raise the severity of these findings by one step' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand export" -l allow -d 'Hide these findings; `all` hides all but those of --warn' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand export" -l config -d 'Read this config file instead of the usual one' -r -F
complete -c kvmtop -n "__fish_kvmtop_using_subcommand export" -l per-vcpu -d 'Counters of each vCPU instead of all vCPUs of a guest together'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand export" -l no-monitor -d 'Never talk to the QEMU monitor (devices are then named from tables)'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand export" -l kvm-events -d 'Also count every kvm tracepoint for each guest'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand demo" -s n -l count -d 'Stop after N intervals (with --batch)' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand demo" -l domain -d 'Only these guests: a glob on the name, a UUID or a PID; repeatable' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand demo" -l warn -d 'Raise the severity of these findings by one step' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand demo" -l allow -d 'Hide these findings; `all` hides all but those of --warn' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand demo" -l config -d 'Read this config file instead of the usual one' -r -F
complete -c kvmtop -n "__fish_kvmtop_using_subcommand demo" -l theme -d 'Colours: auto, dark, light, 16 or mono [default: auto]' -r
complete -c kvmtop -n "__fish_kvmtop_using_subcommand demo" -s b -l batch -d 'Print each interval as a text table'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand demo" -l json -d 'One JSON object a line instead of tables (with --batch)'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand demo" -l ascii -d 'Draw with ASCII characters only'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand demo" -l no-color -d 'Draw without colour (as with the variable `NO_COLOR`)'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand demo" -l mouse -d 'Let kvmtop have the mouse: a click selects, shows a view or sorts, the wheel scrolls'
complete -c kvmtop -n "__fish_kvmtop_using_subcommand demo" -s h -l help -d 'Print help (see more with \'--help\')'
