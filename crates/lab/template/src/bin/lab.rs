fn main() -> std::process::ExitCode {
    pandemonium_lab::main(pandemonium_lab::policies![shortest::Shortest])
}
