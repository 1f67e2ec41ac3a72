// SPDX-License-Identifier: GPL-2.0-only

//! Compiles the rules in `src/bpf` for the host, with the sanitizers too if Rust's address
//! sanitizer is on (`make sanitize`).

fn main() {
    let bpf = "../../src/bpf";
    for file in ["rules.h", "order_rules.h", "timer_rules.h", "fast_path.h"] {
        println!("cargo:rerun-if-changed={bpf}/{file}");
    }
    println!("cargo:rerun-if-changed=src/host.c");
    let mut build = cc::Build::new();
    build.file("src/host.c").include(bpf).warnings(true);
    if std::env::var("CARGO_CFG_SANITIZE").is_ok_and(|on| on.contains("address")) {
        build.flag("-fsanitize=address,undefined").flag("-fsanitize-trap=undefined");
    }
    build.compile("pandemonium_bpf_rules");
}
