module github.com/manifoldco/promptui

go 1.26.0
