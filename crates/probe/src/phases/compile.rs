// SPDX-License-Identifier: GPL-2.0-only

//! A real compilation: C files, the same for the same seed, through the machine's compiler.

use crate::report::Report;
use crate::setting::{Meter, Setting};
use crate::tasks::clock;
use crate::tasks::wakeups::Random;
use anyhow::{Context, Result, bail, ensure};
use pandemonium_statistics::figure::Unit;
use pandemonium_trust::program::Program;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Compilers, of which the first that runs is used, and the cost of a file in rounds of
/// `work::burn`: 0.17 s on a common CPU. For tcc it is the cost in the lab, 6 ms in exact mode.
const COMPILERS: [Compiler; 4] = [
    Compiler { name: "cc", rounds_per_file: 130_000_000 },
    Compiler { name: "gcc", rounds_per_file: 130_000_000 },
    Compiler { name: "clang", rounds_per_file: 130_000_000 },
    Compiler { name: "tcc", rounds_per_file: 1_000_000 },
];
const FUNCTIONS: u64 = 20;

struct Compiler {
    name: &'static str,
    rounds_per_file: u64,
}

/// The same as `make -jn` on a fresh tree. The amount is fixed, the time is measured.
pub fn compile(setting: &Setting) -> Result<Report> {
    let (compiler, program) = compiler()?;
    let files = files(compiler, setting);
    let tree = Tree::create(files, setting.seed)?;
    let load = setting.load(&[])?;
    let mut report = Report::default();
    let meter = Meter::start(setting, &load)?;
    let start = clock::now_ns();
    tree.compile(&program, setting.n())?;
    let took_ms = (clock::now_ns() - start) as f64 / 1e6;
    meter.finish(&mut report)?;
    tree.check()?;
    report.lower("time", Unit::Ms, took_ms);
    Ok(report)
}

/// The number of files that all CPUs together compile within the time of the phase.
fn files(compiler: &Compiler, setting: &Setting) -> usize {
    let rounds_per_s = setting.rounds_per_ms as f64 * 1_000.0;
    let each = setting.seconds() * rounds_per_s / compiler.rounds_per_file as f64;
    (each as usize).max(1) * setting.n()
}

/// The first compiler that runs. One that another user could have written fails the phase.
fn compiler() -> Result<(&'static Compiler, Program)> {
    let runs = |program: &Program| {
        let mut command = program.command();
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    for compiler in &COMPILERS {
        if let Some(program) = Program::named(compiler.name)?.filter(runs) {
            return Ok((compiler, program));
        }
    }
    bail!(
        "there is no C compiler here (cc, gcc, clang or tcc; root searches only folders that no \
         other user can write to)"
    )
}

/// The sources and objects; dropping the value removes them.
struct Tree {
    folder: PathBuf,
    files: usize,
}

impl Tree {
    fn create(files: usize, seed: u64) -> Result<Tree> {
        let folder = std::env::temp_dir().join(format!("pandemonium-tree-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let tree = Tree { folder, files };
        let mut random = Random::seeded(seed);
        for number in 0..files {
            let path = tree.source(number);
            fs::write(&path, source(number, &mut random))
                .with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(tree)
    }

    fn source(&self, number: usize) -> PathBuf {
        self.folder.join(format!("part{number}.c"))
    }

    /// Fails if an object file is missing or empty.
    fn check(&self) -> Result<()> {
        for number in 0..self.files {
            let object = self.source(number).with_extension("o");
            let size = fs::metadata(&object).map(|data| data.len());
            ensure!(size.is_ok_and(|size| size > 0), "{} was not compiled", object.display());
        }
        Ok(())
    }

    /// Compiles all files, so many at a time.
    fn compile(&self, compiler: &Program, at_once: usize) -> Result<()> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.files {
                    return Ok(());
                }
                compile_one(compiler, &self.source(number))?;
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
            for thread in threads {
                match thread.join() {
                    Ok(result) => result?,
                    Err(_) => bail!("a compiling thread panicked"),
                }
            }
            Ok(())
        })
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn compile_one(compiler: &Program, source: &Path) -> Result<()> {
    let mut command = compiler.command();
    command.args(["-O1", "-c", "-o"]).arg(source.with_extension("o")).arg(source);
    let output = command.stdin(Stdio::null()).output();
    let name = compiler.path().display();
    let output = output.with_context(|| format!("starting {name}"))?;
    let messages = String::from_utf8_lossy(&output.stderr);
    let first = messages.lines().next().unwrap_or_default();
    ensure!(output.status.success(), "{name} cannot compile {}: {first}", source.display());
    Ok(())
}

/// One file: functions with loops and branches over a table, each calling the one before it.
fn source(number: usize, random: &mut Random) -> String {
    let mut text = format!("static unsigned table{number}[64];\n");
    for function in 0..FUNCTIONS {
        let (step, mask, shift) = (random.below(97) + 1, random.below(64), random.below(31));
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "unsigned f{number}_{function}(unsigned x)\n{{\n\
             \tfor (unsigned i = 0; i < {step}; i++) {{\n\
             \t\tif ((x ^ i) & {mask})\n\t\t\tx += table{number}[(x >> {shift}) & 63] * {step}u;\n\
             \t\telse\n\t\t\ttable{number}[i & 63] = x - i;\n\
             \t\tswitch (x & 7) {{\n\t\tcase 1: x += i; break;\n\t\tcase 3: x ^= {mask}u; break;\n\
             \t\tcase 6: x = x * 3 + 1; break;\n\t\tdefault: x -= {shift}u;\n\t\t}}\n\t}}\n"
        );
        let _ = match function {
            0 => write!(text, "\treturn x;\n}}\n"),
            _ => write!(text, "\treturn f{number}_{}(x) ^ x;\n}}\n", function - 1),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_tree() {
        let of = |seed| source(0, &mut Random::seeded(seed));
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
