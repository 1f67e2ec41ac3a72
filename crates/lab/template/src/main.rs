fn main() -> std::process::ExitCode {
    scx_pandemonium_user::main(scx_pandemonium_user::policies![shortest::Shortest])
}
