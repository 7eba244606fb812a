// LibTorch includes this header of gloo and uses nothing of it; see the README of this folder.
#pragma once
