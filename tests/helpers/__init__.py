"""What tests share: forests, networks, files and pages to test with."""
