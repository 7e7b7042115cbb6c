class X: pass
