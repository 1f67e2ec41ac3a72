// SPDX-License-Identifier: GPL-2.0-only

//! Compiles the rules in `src/bpf` for the host.

fn main() {
    let bpf = "../../src/bpf";
    for file in ["rules.h", "order_rules.h", "timer_rules.h", "fast_path.h"] {
        println!("cargo:rerun-if-changed={bpf}/{file}");
    }
    println!("cargo:rerun-if-changed=src/host.c");
    cc::Build::new()
        .file("src/host.c")
        .include(bpf)
        .warnings(true)
        .compile("pandemonium_bpf_rules");
}
