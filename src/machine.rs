// SPDX-License-Identifier: GPL-2.0-only

//! The CPUs of the machine: facts from the kernel first, then the topology and the domain that
//! follow from them, so that tests cover machines of any kind.

use super::cli::{DomainWish, UrgentWish};
use anyhow::anyhow;
use pandemonium_engine::task::CpuId;
use pandemonium_engine::topology::{CpuMask, CpuPlace, Domain, Topology};
use pandemonium_host::failure::Failure;
use pandemonium_rules::{CpuKinds, DomainWish as CpuWish};
use scx_utils::CoreType;
use std::collections::{BTreeMap, BTreeSet};

/// A cache that is smaller than the largest by more than this part is another kind of cache. A
/// chip with a stacked cache has three times that of its neighbour; those of one kind differ less.
const CACHE_FACTOR: usize = 4;

/// The CPUs that are online.
pub struct Machine {
    cpus: Vec<OnlineCpu>,
}

/// One CPU, with the kernel's numbers for what it shares with other CPUs.
#[derive(Clone, Copy, Debug)]
struct OnlineCpu {
    id: CpuId,
    core: usize,
    l2: Option<usize>,
    llc: usize,
    node: usize,
    /// Whether it is one of the slower CPUs of a hybrid machine.
    little: bool,
    /// Its part of the caches that it uses, in bytes.
    cache: usize,
}

impl Machine {
    /// Reads the topology from the kernel.
    pub fn observe() -> Result<Machine, Failure> {
        let unknown = |error| anyhow!("cannot find out which CPUs there are: {error:#}");
        let found = scx_utils::Topology::new().map_err(unknown).map_err(Failure::internal)?;
        let cpus = found.all_cpus.values().filter_map(|cpu| {
            Some(OnlineCpu {
                id: CpuId::new(i32::try_from(cpu.id).ok()?)?,
                core: cpu.core_id,
                l2: (cpu.l2_id != usize::MAX).then_some(cpu.l2_id),
                llc: cpu.llc_id,
                node: cpu.node_id,
                little: cpu.core_type == CoreType::Little,
                cache: cpu.cache_size,
            })
        });
        Ok(Machine { cpus: cpus.collect() })
    }

    /// The CPUs that are online.
    pub fn online(&self) -> CpuMask {
        self.cpus.iter().map(|cpu| cpu.id).collect()
    }

    /// The CPUs that are online, by kind.
    pub fn kinds(&self) -> CpuKinds {
        let slow = self.cpus.iter().filter(|cpu| cpu.little).map(|cpu| cpu.id).collect();
        CpuKinds { online: self.online(), slow }
    }

    /// The CPUs that are online, counted.
    pub fn summary(&self) -> Summary {
        let different = |number: fn(&OnlineCpu) -> Option<usize>| {
            self.cpus.iter().filter_map(number).collect::<BTreeSet<_>>().len()
        };
        Summary {
            cpus: self.cpus.len(),
            cores: different(|cpu| Some(cpu.core)),
            slow: self.cpus.iter().filter(|cpu| cpu.little).count(),
            l2s: different(|cpu| cpu.l2),
            llcs: different(|cpu| Some(cpu.llc)),
            nodes: different(|cpu| Some(cpu.node)),
        }
    }

    /// The place of every CPU. An offline CPU shares nothing.
    pub fn topology(&self) -> Topology {
        let mut numbers = [(); 4].map(|()| Numbers::default());
        let [cores, l2s, llcs, nodes] = &mut numbers;
        let count = self.cpus.iter().map(|cpu| cpu.id.as_raw() + 1).max().unwrap_or(0);
        let mut places = vec![CpuPlace::UNKNOWN; count as usize];
        for cpu in &self.cpus {
            places[cpu.id.as_raw() as usize] = CpuPlace {
                core: cores.of(cpu.core),
                l2: cpu.l2.map_or(u16::MAX, |l2| l2s.of(l2)),
                llc: llcs.of(cpu.llc),
                node: nodes.of(cpu.node),
            };
        }
        Topology::new(places)
    }

    /// The CPUs that urgent tasks prefer; none if all CPUs are alike to them.
    pub fn urgent(&self, wish: &UrgentWish) -> Result<CpuMask, Failure> {
        let online = self.online();
        let preferred = match wish {
            UrgentWish::None => CpuMask::EMPTY,
            UrgentWish::Auto => self.best(),
            UrgentWish::Cpus(cpus, text) => {
                self.online_of(cpus, &format!("--urgent-cpus {text}"), None)?
            }
        };
        Ok(if preferred == online { CpuMask::EMPTY } else { preferred })
    }

    /// The fast CPUs of a hybrid machine; else those with far larger caches than others.
    fn best(&self) -> CpuMask {
        let of = |is_best: &dyn Fn(&OnlineCpu) -> bool| {
            self.cpus.iter().filter(|cpu| is_best(cpu)).map(|cpu| cpu.id).collect()
        };
        if self.cpus.iter().any(|cpu| cpu.little) {
            return of(&|cpu| !cpu.little);
        }
        let largest = self.cpus.iter().map(|cpu| cpu.cache).max().unwrap_or(0);
        of(&|cpu| CACHE_FACTOR * cpu.cache >= (CACHE_FACTOR - 1) * largest)
    }

    /// The CPUs to prefer; `None` for all of them.
    pub fn domain(&self, wish: &DomainWish, strict: bool) -> Result<Option<Domain>, Failure> {
        let DomainWish::Of(wish) = wish else { return Ok(None) };
        let is_by_kind = matches!(wish, CpuWish::Powersave);
        let why = is_by_kind.then_some("the CPUs of this machine are all of one kind");
        let cpus = wish.cpus(&self.kinds());
        let usable = self.online_of(&cpus, &format!("--primary-domain {wish}"), why)?;
        Ok((usable != self.online()).then_some(Domain { cpus: usable, strict }))
    }

    /// Those of the CPUs that are online. If there is none, the refusal of the option says why, or
    /// which ones are.
    fn online_of(
        &self,
        cpus: &CpuMask,
        option: &str,
        why: Option<&str>,
    ) -> Result<CpuMask, Failure> {
        let online = self.online();
        let usable = cpus.and(&online);
        if usable.is_empty() {
            let those = || format!("the online CPUs are {}", list(&online));
            let why = why.map_or_else(those, str::to_owned);
            return Err(Failure::Usage(format!("{option} names no CPU that is online: {why}")));
        }
        Ok(usable)
    }
}

/// The CPUs that are online now, by one read. `None` if the kernel does not tell.
pub fn online() -> Option<CpuMask> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    CpuMask::parse(text.trim()).ok()
}

/// How many CPUs there are, and of what kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub cpus: usize,
    pub cores: usize,
    /// The slower CPUs of a hybrid machine.
    pub slow: usize,
    /// Second-level caches; 0 if unknown.
    pub l2s: usize,
    /// Last-level caches.
    pub llcs: usize,
    pub nodes: usize,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counted = |count: usize, what: &str| match count {
            1 => format!("1 {what}"),
            _ => format!("{count} {what}s"),
        };
        write!(f, "{} online", counted(self.cpus, "CPU"))?;
        if self.slow > 0 {
            write!(f, ", {} of them slower", self.slow)?;
        }
        write!(f, ": {}, ", counted(self.cores, "core"))?;
        match self.l2s {
            0 => f.write_str("second-level caches unknown, ")?,
            known => write!(f, "{}, ", counted(known, "second-level cache"))?,
        }
        let (llcs, nodes) = (counted(self.llcs, "last-level cache"), counted(self.nodes, "node"));
        write!(f, "{llcs}, {nodes}")
    }
}

/// Dense numbers, in the order in which they are first needed.
#[derive(Default)]
struct Numbers(BTreeMap<usize, u16>);

impl Numbers {
    fn of(&mut self, kernel: usize) -> u16 {
        // Caches and nodes are no more than CPUs, and 16 bits number all CPUs.
        let next = self.0.len() as u16;
        *self.0.entry(kernel).or_insert(next)
    }
}

/// CPUs as the kernel lists them: `0-3,8`.
pub fn list(cpus: &CpuMask) -> String {
    let mut ranges: Vec<(i32, i32)> = Vec::new();
    for cpu in cpus.iter().map(CpuId::as_raw) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let range = |&(first, last): &(i32, i32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(number: i32) -> CpuId {
        CpuId::new(number).unwrap()
    }

    /// Two fast cores with two threads each and a cache for each core, on node 0; two slow ones
    /// that share a cache, on node 4; CPU 4 is offline. The kernel's numbers have gaps.
    fn hybrid() -> Machine {
        let fast = |id, core| OnlineCpu {
            id: cpu(id),
            core,
            l2: Some(core * 8),
            llc: 3,
            node: 0,
            little: false,
            cache: 4 << 20,
        };
        let slow =
            |id, core| OnlineCpu { l2: Some(77), llc: 9, node: 4, little: true, ..fast(id, core) };
        Machine {
            cpus: vec![fast(0, 0), fast(1, 0), fast(2, 1), fast(3, 1), slow(5, 6), slow(6, 7)],
        }
    }

    fn uniform() -> Machine {
        let one = |id| OnlineCpu {
            id: cpu(id),
            core: 0,
            l2: None,
            llc: 0,
            node: 0,
            little: false,
            cache: 1 << 20,
        };
        Machine { cpus: vec![one(0), one(1)] }
    }

    fn named(machine: &Machine, text: &str) -> Result<Option<Domain>, String> {
        machine.domain(&text.parse().unwrap(), true).map_err(|error| error.to_string())
    }

    #[test]
    fn cpus_that_share_a_cache_or_node_share_its_number() {
        let topology = hybrid().topology();
        assert_eq!(topology.cpus(), 7);
        let place = |number| topology.place(cpu(number));
        assert_eq!(place(1), CpuPlace { core: 0, l2: 0, llc: 0, node: 0 });
        assert_eq!(place(2), CpuPlace { core: 1, l2: 1, llc: 0, node: 0 });
        assert_eq!(place(6), CpuPlace { core: 3, l2: 2, llc: 1, node: 1 });
        assert!(topology.shares_l2(cpu(5), cpu(6)) && !topology.shares_l2(cpu(1), cpu(2)));
        assert!(!topology.shares_l2(cpu(4), cpu(5)), "offline");
        assert!(!uniform().topology().shares_l2(cpu(0), cpu(1)), "an unknown cache is not shared");
    }

    #[test]
    fn a_summary_counts_cores_caches_and_nodes() {
        let hybrid = hybrid().summary();
        let counted = Summary { cpus: 6, cores: 4, slow: 2, l2s: 3, llcs: 2, nodes: 2 };
        assert_eq!(hybrid, counted);
        assert_eq!(
            hybrid.to_string(),
            "6 CPUs online, 2 of them slower: 4 cores, 3 second-level caches, 2 last-level caches, \
             2 nodes"
        );
        assert!(uniform().summary().to_string().contains("second-level caches unknown"));
    }

    #[test]
    fn a_domain_has_the_named_cpus_and_all_cpus_are_no_domain() {
        let cpus = |text: &str| {
            let domain = named(&hybrid(), text).unwrap();
            domain.map(|domain| domain.cpus.iter().map(|cpu| cpu.as_raw()).collect::<Vec<_>>())
        };
        assert_eq!(cpus("performance"), Some(vec![0, 1, 2, 3]));
        assert_eq!(cpus("powersave"), Some(vec![5, 6]));
        assert_eq!(cpus("0-7:2"), Some(vec![0, 2, 6]), "4 is offline");
        assert_eq!(cpus("all"), None);
        assert_eq!(cpus("0-63"), None);
        assert!(named(&hybrid(), "5").unwrap().unwrap().strict);
        assert_eq!(named(&uniform(), "performance"), Ok(None));
    }

    fn urgent(machine: &Machine, text: &str) -> Vec<i32> {
        let cpus = machine.urgent(&text.parse().unwrap()).unwrap();
        cpus.iter().map(|cpu| cpu.as_raw()).collect()
    }

    #[test]
    fn urgent_tasks_prefer_fast_cpus_or_large_caches_or_those_of_the_list() {
        assert_eq!(urgent(&hybrid(), "auto"), [0, 1, 2, 3]);
        assert!(urgent(&hybrid(), "none").is_empty());
        assert_eq!(urgent(&hybrid(), "4-5"), [5], "4 is offline");
        assert!(urgent(&hybrid(), "0-63").is_empty(), "all");
        let mut stacked = uniform();
        assert!(urgent(&stacked, "auto").is_empty());
        stacked.cpus[1].cache = 3 << 20;
        assert_eq!(urgent(&stacked, "auto"), [1]);
        stacked.cpus[0].cache = 5 << 19;
        assert!(urgent(&stacked, "auto").is_empty(), "caches of about one size");
        let refused = uniform().urgent(&"7".parse().unwrap()).unwrap_err().to_string();
        assert!(refused.ends_with("names no CPU that is online: the online CPUs are 0-1"));
    }

    #[test]
    fn a_domain_without_an_online_cpu_is_refused() {
        assert_eq!(
            named(&hybrid(), "4,7-9").unwrap_err(),
            "--primary-domain 4,7-9 names no CPU that is online: the online CPUs are 0-3,5-6"
        );
        assert_eq!(
            named(&uniform(), "powersave").unwrap_err(),
            "--primary-domain powersave names no CPU that is online: the CPUs of this machine are \
             all of one kind"
        );
    }
}
